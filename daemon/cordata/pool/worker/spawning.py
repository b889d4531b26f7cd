"""Starting a child, by `posix_spawn`: a worker has threads and must not fork."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from cordata.pool.shared.page import SIZE, StatusReader
from cordata.pool.shared.paths import ChildAddress, Place, parse
from cordata.pool.shared.spec import CHANNEL_FD, LISTEN_FD, SPEC_FD, STATUS_FD, ChildSpec
from cordata.unix_socket import socket_address

#: Variables that a child does not get: they are between worker and systemd, or lead to secrets.
_WITHHELD = (
    *("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM"),
    *("MAINPID", "MANAGERPID", "CORDATA_"),
)
#: Descriptors are first moved to this number or above, so that none is where another has to go.
_PARKED = 16
#: Connections that may wait while a command runs.
_BACKLOG = 1024
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
#: Of sockets, status pages and their directory, whose group may call.
_SOCKET_MODE, _STATUS_MODE, _DIRECTORY_MODE = 0o660, 0o640, 0o750


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that was just started, and the worker's ends of what the two share."""

    pid: int
    #: Readable when it has died.
    pidfd: int
    #: Pipe of its stdout and stderr, non-blocking.
    output: int
    #: Socket for Ping, Pong, Stop and so on, non-blocking.
    channel: socket.socket
    #: Its status page, writable, and what reads it.
    page: mmap.mmap
    reader: StatusReader
    #: Its socket and status page; hidden until `publish`.
    address: ChildAddress
    #: Closes the worker's ends, and removes both files.
    ends: ExitStack

    def publish(self) -> None:
        """Let clients connect. The status page first: clients open it when they see the socket."""
        for file in (self.address.status, self.address.socket):
            _hidden(file).rename(file)


def make_directory(directory: Path) -> None:
    """Create RUNTIME/pool/NAME, readable for the group of the service. Raises: OSError."""
    for one in (directory.parent, directory):
        with contextlib.suppress(FileExistsError):
            one.mkdir(parents=True)
            one.chmod(_DIRECTORY_MODE)


def clean_directory(directory: Path, worker: str) -> None:
    """Remove the files of former children of this worker: one that was killed leaves them behind.
    Raises: OSError.
    """
    for file in directory.iterdir():
        found = parse(directory, file.name.removeprefix("."))
        if found is not None and found.place.worker == worker:
            file.unlink(missing_ok=True)


def spawn(spec: ChildSpec) -> Spawned:
    """Start a child in a new session, so that a signal to its group reaches its own children, too.

    The child is killed when the calling thread ends, so call this in the main thread. Raises:
    OSError.
    """
    address = ChildAddress(Path(spec.directory), spec.place, spec.generation)
    with ExitStack() as ours, ExitStack() as theirs:
        ours.callback(_remove, address)
        file = os.open(_hidden(address.status), _NEW, _STATUS_MODE)
        theirs.callback(os.close, file)
        os.fchmod(file, _STATUS_MODE)  # regardless of the umask
        # Not ftruncate: on a full file system the first write to a hole is a SIGBUS.
        os.posix_fallocate(file, 0, SIZE)
        page = ours.enter_context(mmap.mmap(file, SIZE))
        reader = StatusReader(page)
        ours.callback(reader.close)
        listener = theirs.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        _listen(listener, _hidden(address.socket))
        channel, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.enter_context(channel)
        theirs.enter_context(far)
        channel.setblocking(False)
        output, writing = os.pipe2(os.O_CLOEXEC)
        ours.callback(os.close, output)
        theirs.callback(os.close, writing)
        os.set_blocking(output, False)
        spec_file = theirs.enter_context(_spec_file(replace(spec, parent=os.getpid())))
        parked = []
        for fd in (writing, far.fileno(), spec_file, file, listener.fileno()):
            parked.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PARKED))
            theirs.callback(os.close, parked[-1])
        pid = _start(spec.place, *parked)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        ours.callback(os.close, pidfd)
        return Spawned(
            pid=pid,
            pidfd=pidfd,
            output=output,
            channel=channel,
            page=page,
            reader=reader,
            address=address,
            ends=ours.pop_all(),
        )


def _hidden(file: Path) -> Path:
    return file.with_name(f".{file.name}")


def _remove(address: ChildAddress) -> None:
    """Remove both files, so that no client connects any more."""
    for file in (address.socket, address.status):
        file.unlink(missing_ok=True)
        _hidden(file).unlink(missing_ok=True)


def _listen(listener: socket.socket, path: Path) -> None:
    with socket_address(path) as address:
        listener.bind(address)
    path.chmod(_SOCKET_MODE)
    listener.listen(_BACKLOG)


@contextlib.contextmanager
def _spec_file(spec: ChildSpec) -> Iterator[int]:
    memory = os.memfd_create("cordata-child", os.MFD_CLOEXEC)
    try:
        data = json.encode(spec)
        if os.write(memory, data) != len(data):
            raise OSError("the memory file is too short")
        yield memory
    finally:
        os.close(memory)


def _start(
    place: Place, writing: int, channel: int, spec_fd: int, status: int, listener: int
) -> int:
    # The last argument is not read: it is for lists of processes (ps).
    argv = [sys.executable, "-P", _main(), f"child@{place}"]
    return os.posix_spawn(
        argv[0],
        argv,
        {key: value for key, value in os.environ.items() if not key.startswith(_WITHHELD)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
            (os.POSIX_SPAWN_DUP2, channel, CHANNEL_FD),
            (os.POSIX_SPAWN_DUP2, spec_fd, SPEC_FD),
            (os.POSIX_SPAWN_DUP2, status, STATUS_FD),
            (os.POSIX_SPAWN_DUP2, listener, LISTEN_FD),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE),
    )


def _main() -> str:
    """The child's program, by path: the package may be outside of the interpreter's `sys.path`."""
    return os.fspath(Path(__file__).parent.with_name("child") / "main.py")
