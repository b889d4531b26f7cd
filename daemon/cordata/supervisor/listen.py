"""Binds the listening sockets of HTTP, with the options of the socket unit."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import time
from collections.abc import Sequence

from cordata import clock
from cordata.errors import ConfigError, CordataError
from cordata.systemd import listen_fds

#: As http.socket has it; the kernel caps it at net.core.somaxconn.
_BACKLOG = 4096
#: Pause between looks whether the queues are empty.
_LOOK_S = 0.001
#: The next step for what may be wrong with an address.
_HINTS = {
    errno.EADDRINUSE: "stop what listens there, or choose another --listen",
    errno.EADDRNOTAVAIL: "give an address of this host; `ip -brief address` lists them",
    errno.EACCES: "give a port above 1023, or a path in a directory that this user may write to",
    errno.ENOENT: "create its directory first, or choose another --listen",
}


def open_all(addresses: Sequence[str]) -> list[socket.socket]:
    """Listen on these addresses; without any on the sockets that the service manager passed, else
    on 127.0.0.1:8080. Raises: as `bind`; ConfigError if one that was passed does not listen.
    """
    passed = [] if addresses else listen_fds()
    for entry in passed:
        if not entry.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ConfigError(
                f"the socket that was passed as {entry.name!r} does not listen",
                hint="who passes it has to call listen(), as systemd does with Accept=no",
            )
    sockets = [entry.sock for entry in passed]
    if sockets:
        return sockets
    try:
        for address in addresses or ["127.0.0.1:8080"]:
            sockets.append(bind(address))
    except CordataError:
        close(sockets)
        raise
    return sockets


def bind(address: str) -> socket.socket:
    """Bind and listen on `HOST:PORT`, `[IPV6]:PORT`, `:PORT` (everywhere), `/path`, `unix:/path`.

    Port 0 takes a free one. A unix socket file on which no process listens is replaced. Raises:
    ConfigError when the address is malformed, CordataError when it cannot be bound.
    """
    path = unix_path(address)
    try:
        return _bind_unix(path) if path else _bind_tcp(*_host_and_port(address))
    except socket.gaierror as error:  # its numbers are not those of errno
        hint = "give an address of this host, or a name that has one"
        raise CordataError(f"cannot listen on {address}: {error.strerror}", hint=hint) from error
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "choose another --listen")
        reason = error.strerror or error  # Python itself refuses a path that is too long
        raise CordataError(f"cannot listen on {address}: {reason}", hint=hint) from error


def unix_path(address: str) -> str | None:
    """The path of a unix address, or None for a TCP one."""
    path = address.removeprefix("unix:")
    return path if path != address or path.startswith(("/", "./")) else None


def url_of(sock: socket.socket) -> str:
    """The URL of a listening socket: `http://HOST:PORT` or `unix:PATH`."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if sock.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}"


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or not _is_name(host):
        raise ConfigError(
            f"--listen {address}: not an address",
            hint="HOST:PORT, [IPV6]:PORT, :PORT or /path/of.sock",
        )
    return host.strip("[]"), int(port)


def _is_name(host: str) -> bool:
    """Whether the resolver takes it: a name's labels have 1 to 63 characters."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _bind_tcp(host: str, port: int) -> socket.socket:
    # Not socket.create_server(): for it "" is IPv4 only.
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # "" finds 0.0.0.0 and ::; one dual-stack socket on :: is both.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET6 if not host else False)
    family, kind, protocol, _, where = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it, as with NoDelay= in a socket unit.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6 and not host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(where)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_unix(path: str) -> socket.socket:
    path = os.path.abspath(path)
    if _is_stale(path):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _is_stale(path: str) -> bool:
    """Whether the path is a socket file of a process that is gone."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a server that hangs may have a full queue
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def close(sockets: Sequence[socket.socket], *, patience_s: float = 0.0) -> None:
    """Close listening sockets.

    Those that `bind` made are closed for all processes that share them, and their files are
    removed; before that they may take `patience_s` to accept the connections that wait. Those of
    the service manager stay open there: connections wait for the next process that it starts.
    """
    passed = [entry.sock for entry in listen_fds()]
    bound = [sock for sock in sockets if sock not in passed]
    for sock in bound:
        if sock.family == socket.AF_UNIX:
            with contextlib.suppress(OSError):
                os.unlink(sock.getsockname())
    _refuse(bound, patience_s)
    for sock in sockets:
        sock.close()


def _refuse(sockets: Sequence[socket.socket], patience_s: float) -> None:
    """Refuse new connections. The kernel resets those that wait to be accepted, so the queues are
    emptied first, and take no more meanwhile: a client that does not get into one repeats its SYN
    after a second, and is refused then.
    """
    queues = select.poll()
    for sock in sockets:
        sock.listen(0)
        queues.register(sock, select.POLLIN)
    deadline = clock.monotonic() + patience_s
    while queues.poll(0) and clock.monotonic() < deadline:
        time.sleep(_LOOK_S)
    for sock in sockets:  # after all are empty: a worker stops accepting at the first
        sock.shutdown(socket.SHUT_RD)
