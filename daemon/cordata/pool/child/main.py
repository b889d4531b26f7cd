"""A child: the process that runs commands, one call at a time, for all clients that connect to it.

```
  started by its worker: die with it --> imports, inits --> Up --> take calls --> Stop: leave

  poll: channel (ping, stop) | listener (new client) | connections --Call--> queue
        queue, first in first out --> begin (pages) --> run --> answer --> end (status page)
```
It imports little: it is started often and may crash. One thread. While a command runs, only the
connection of its caller is read, and only when the command asks whether it is cancelled or sends a
stream.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import re
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Sequence
from ctypes import CDLL
from time import monotonic
from typing import NoReturn

if not __package__:
    # A worker starts this file by its path, so that nothing else has to be imported before. With -P
    # its directory is not on the path, where its modules would hide others.
    _up = os.path.dirname
    sys.path.insert(0, _up(_up(_up(_up(os.path.abspath(__file__))))))

from msgspec import json

from cordata.errors import CallCancelled, FrameTooLarge, ProtocolError, is_transient
from cordata.log import frames, logger, shows_messages, trail
from cordata.pool.child.command_runner import CommandRunner
from cordata.pool.child.current import unread_error
from cordata.pool.child.output import ChildOutput
from cordata.pool.shared import page, protocol
from cordata.pool.shared.page import ConnectionPage, StatusWriter
from cordata.pool.shared.paths import set_own_pool
from cordata.pool.shared.protocol import (
    Call,
    Cancel,
    Failure,
    Hello,
    NotRun,
    Packet,
    Welcome,
    encode,
    from_client,
)
from cordata.pool.shared.spec import CHANNEL_FD, LISTEN_FD, SPEC_FD, STATUS_FD, ChildSpec
from cordata.unhandled import install_hooks

log = logger("cordata.pool")

_PR_SET_PDEATHSIG = 1
#: Pause between two polls of the sockets while calls wait: to poll between any two of the
#: shortest calls takes up to 8 per cent of their processor time.
_LOOK_S = 0.001
#: Pause before the next accept when the process had no free descriptor.
_ACCEPT_AGAIN_S = 0.1
#: Packets that one check for a cancellation reads, at most.
_READS = 16
#: Bytes of answers that are not read, that one connection may have here.
_MAX_UNREAD = 67_108_864
#: Errors whose messages name modules, files and lines, and no values.
_OF_THE_CODE = (ImportError, ModuleNotFoundError, SyntaxError, IndentationError, TabError)
#: Frames of the import system: a dozen for each nested import, without information.
_IMPORTING = re.compile(r'^  (?:File ")?<frozen importlib\._bootstrap.*\n?', re.MULTILINE)
#: Characters of a traceback in the journal, at most.
_TRACE = 16_384


class Channel:
    """The socket to the worker; the child ends when the worker is gone."""

    def __init__(self) -> None:
        self.socket = socket.socket(fileno=CHANNEL_FD)

    def send(self, packet: Packet) -> None:
        """Send a packet; this process ends if the worker is gone."""
        try:
            protocol.send(self.socket, encode(packet))
        except OSError:
            os._exit(1)

    def read(self) -> protocol.WorkerToChild:
        """The next packet of the worker; this process ends if the worker is gone."""
        try:
            data = self.socket.recv(4096)
            if not data:
                os._exit(1)
            return protocol.worker_to_child.decode(data)
        except (OSError, ProtocolError):
            os._exit(1)


class Connection:
    """The connection of one client; for the call that runs it is the `Caller` (current.py)."""

    def __init__(self, sock: socket.socket, loop: Loop) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.client = 0
        self.page: ConnectionPage | None = None
        self.closed = False
        #: Answers that the client has not read yet.
        self.unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._loop = loop
        # State of the running call:
        self.credits = 0
        self._running: Call | None = None
        self._over = False

    def fileno(self) -> int:
        """Descriptor of its socket; -1: it is closed."""
        return self.socket.fileno()

    def begin(self, call: Call) -> None:
        """Set the running call."""
        self._running, self.credits, self._over = call, call.credits, False

    def end(self) -> None:
        """The running call is over."""
        self._running = None

    def poll_cancelled(self) -> bool:
        """Read what has arrived, without waiting. True: the caller does not wait any more."""
        if not self._over:
            self.read(_READS)
        return self._over or self.closed

    def send_chunk(self, data: bytes) -> None:
        """Send a chunk and wait until the socket took it. Raises: CallCancelled, CallFailure."""
        assert self._running is not None
        timeout_s = self._loop.spec.unread_timeout_s
        until = min(monotonic() + timeout_s, self._running.deadline)
        self.send(data)
        while self.unread and not self.closed:
            if not self.wait(select.POLLOUT, until - monotonic()):
                raise unread_error(self._running, timeout_s)
            self.flush()
        if self.closed:
            raise CallCancelled

    def send(self, message: bytes) -> None:
        """Send an answer, or keep it until the client reads: a slow client does not block."""
        if self.closed:
            return
        data = protocol.batch((message,))
        if self.unread:
            self._keep(data)
            return
        try:
            protocol.send(self.socket, data)
        except BlockingIOError:
            self._keep(data)
        except OSError:
            self.close()

    def flush(self) -> None:
        """Send kept answers, as far as the socket takes them now."""
        try:
            while self.unread:
                protocol.send(self.socket, self.unread[0])
                self._unread_bytes -= len(self.unread.popleft())
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._loop.watch(self, select.POLLIN)

    def read(self, packets: int = 1) -> None:
        """Read at most `packets` packets, without waiting."""
        limit = self._loop.spec.max_frame_bytes + protocol.HEAD_BYTES
        try:
            for _ in range(packets):
                if self.closed:
                    return
                self._take(*protocol.receive(self.socket, limit))
        except BlockingIOError:
            return
        except FrameTooLarge as error:
            # The call is unknown, so the client has to end all its calls here.
            self.refuse(error.code, str(error))
        except (ProtocolError, OSError) as error:
            self.refuse("protocol", str(error))

    def refuse(self, code: str, message: str) -> None:
        """Send the reason, and close."""
        self.send(encode(Failure(0, code, message)))
        self.close()

    def close(self) -> None:
        """Close, and drop its waiting calls; a running call sees it by `poll_cancelled`."""
        if not self.closed:
            self.closed = True
            self._loop.forget(self)
            self.socket.close()
            if self.page is not None:
                self.page.close()
            self.unread.clear()

    def wait(self, event: int, timeout_s: float) -> bool:
        """Wait until the client reads or sends; False: neither within the timeout."""
        poll = select.poll()
        poll.register(self.socket, event)
        poll.register(CHANNEL_FD, 0)  # only to see the end of the worker
        found = poll.poll(max(0.0, timeout_s) * 1000.0)
        if any(fd == CHANNEL_FD for fd, _ in found):
            os._exit(1)
        return bool(found)

    def _take(self, data: bytes, files: Sequence[int]) -> None:
        if not data:
            self.close()
            return
        try:
            messages = from_client.decode(data)
            if self.page is None:
                first = messages.pop(0) if messages else None
                if not isinstance(first, Hello):
                    raise ProtocolError("the first message is not a hello")
                self._handshake(first, files)
        finally:
            protocol.close(files)
        loop = self._loop
        for message in messages:
            if isinstance(message, Call):
                loop.add(self, message)
            elif isinstance(message, Hello):
                raise ProtocolError("a hello comes once")
            elif self._running is None or message.number != self._running.number:
                pass  # of a call that is over; one that waits and is cancelled was revoked
            elif isinstance(message, Cancel):
                self._over = True
            else:
                self.credits += message.count
        loop.tell_waiting()

    def _handshake(self, hello: Hello, files: Sequence[int]) -> None:
        if hello.version != protocol.VERSION:
            raise ProtocolError(f"version {hello.version}, this is {protocol.VERSION}")
        if len(files) != 1:
            raise ProtocolError("a hello comes with the page of the connection")
        self.page = ConnectionPage(files[0])
        self.client = hello.client
        spec = self._loop.spec
        options = {
            name: spec.options.get(name, protocol.CommandOptions()) for name in spec.commands
        }
        welcome = Welcome(os.getpid(), options, spec.max_frame_bytes)
        self.send(encode(welcome))

    def _keep(self, data: bytes) -> None:
        self.unread.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > _MAX_UNREAD:
            log.warning("a client with %d unread bytes is disconnected", self._unread_bytes)
            self.close()
        else:
            self._loop.watch(self, select.POLLIN | select.POLLOUT)


class Loop:
    """The loop of a child: it reads from sockets between two calls, and runs the calls in order."""

    def __init__(
        self,
        spec: ChildSpec,
        status: StatusWriter,
        channel: Channel,
        runner: CommandRunner,
        output: ChildOutput,
    ) -> None:
        self.spec = spec
        self._status = status
        self._channel = channel
        self._runner = runner
        self._output = output
        self._listener = socket.socket(fileno=LISTEN_FD)
        self._listener.setblocking(False)
        self._poll = select.poll()
        for sock in (channel.socket, self._listener):
            self._poll.register(sock, select.POLLIN)
        self._connections: dict[int, Connection] = {}
        self._queue: deque[tuple[Connection, Call]] = deque()
        #: When to accept connections again; 0.0: they are accepted.
        self._accept_at = 0.0
        #: When to look at the sockets again, though a call waits.
        self._look_at = 0.0
        self._stopping = False
        os.register_at_fork(after_in_child=self._close_sockets)

    def run(self) -> None:
        """Take calls until the worker sends Stop."""
        self._channel.send(protocol.Up())
        while not self._stopping:
            if not self._queue or monotonic() >= self._look_at:
                self._look(wait=not self._queue)
            else:
                self._serve(*self._queue.popleft())
        self._leave()

    def add(self, connection: Connection, call: Call) -> None:
        """Queue a call."""
        self._queue.append((connection, call))

    def tell_waiting(self) -> None:
        """Note on the status page how many calls wait."""
        self._status.set_waiting(len(self._queue))

    def watch(self, connection: Connection, event: int) -> None:
        """Set the events for which its socket is polled."""
        if connection.fileno() in self._connections:
            self._poll.modify(connection.socket, event)

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection and its calls."""
        if self._connections.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection.socket)
        self._queue = deque(entry for entry in self._queue if entry[0] is not connection)
        self.tell_waiting()

    def _close_sockets(self) -> None:
        """Leave the sockets to the child, in a process that a command has forked: it would send
        chunks and read calls, and clients would not see the end of the child while it runs.
        """
        for connection in self._connections.values():
            connection.closed = True  # not by `close`, which writes to the status page
            connection.socket.close()
        self._listener.close()
        self._channel.socket.close()

    def _look(self, *, wait: bool) -> None:
        """Poll and read, with `wait` until something arrives. The worker first: Stop comes before
        calls.
        """
        timeout_s = None if wait else 0.0
        if self._accept_at and self._accept_at <= monotonic():
            self._accept_at = 0.0
            self._poll.register(self._listener, select.POLLIN)
        elif self._accept_at and wait:
            timeout_s = self._accept_at - monotonic()
        found = dict(self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000.0))
        if self._channel.socket.fileno() in found:
            del found[self._channel.socket.fileno()]
            if isinstance(self._channel.read(), protocol.Ping):
                self._channel.send(protocol.Pong())
            else:
                self._stopping = True
                return
        for fd, event in found.items():
            if fd == self._listener.fileno():
                self._accept()
                continue
            connection = self._connections.get(fd)
            if connection is not None:
                if event & select.POLLOUT:
                    connection.flush()
                if event & ~select.POLLOUT:
                    connection.read()
        self._look_at = monotonic() + _LOOK_S

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if is_transient(error):  # no free descriptor: the socket stays readable
                self._poll.unregister(self._listener)
                self._accept_at = monotonic() + _ACCEPT_AGAIN_S
            return
        self._connections[sock.fileno()] = Connection(sock, self)
        self._poll.register(sock, select.POLLIN)

    def _serve(self, connection: Connection, call: Call) -> None:
        status, runner = self._status, self._runner
        began = monotonic()
        session = runner.prepare(call, began)
        # After `prepare`, which may block: the worker that paused it waits for SETTLE_S only.
        while status.paused:
            time.sleep(page.SETTLE_S)
        assert connection.page is not None  # it said hello
        if not (isinstance(session, Packet) or connection.page.may_begin(call.number)):
            session = NotRun(call.number, "revoked")
        if isinstance(session, Packet):
            self.tell_waiting()
            connection.send(encode(session))
            return
        client = connection.client
        status.begin(client, call.id, call.command, began, call.deadline)
        self.tell_waiting()  # not before: clients must not take this child for free meanwhile
        self._output.begin(client, call.id, call.request_id, call.traceparent)
        connection.begin(call)
        data, failed = runner.run(call, session, connection)
        connection.end()
        self._output.end()
        status.end(failed=failed)  # before the answer, so that its receiver sees a free child
        connection.send(data)

    def _leave(self) -> None:
        """Send the answers that are kept, and close the connections: their pages say which calls
        have not begun. A new connection would count as a child that will soon be free.
        """
        self._listener.close()
        until = monotonic() + 1.0
        for connection in sorted(self._connections.values(), key=lambda one: len(one.unread)):
            while connection.unread and not connection.closed and monotonic() < until:
                connection.wait(select.POLLOUT, until - monotonic())
                connection.flush()
            connection.close()


def main() -> int:
    """Run a child; returns its exit status."""
    # Close what the worker inherited from its own parent.
    os.closerange(LISTEN_FD + 1, os.sysconf("SC_OPEN_MAX"))
    for fd in (CHANNEL_FD, SPEC_FD, STATUS_FD, LISTEN_FD):
        os.set_inheritable(fd, False)  # not for subprocesses of commands
    spec = json.decode(os.pread(SPEC_FD, os.fstat(SPEC_FD).st_size, 0), type=ChildSpec)
    os.close(SPEC_FD)
    sys.path[:] = spec.path
    set_own_pool(spec.directory)
    output = ChildOutput(spec.log_level)
    install_hooks()
    _die_with(spec.parent)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the worker, which stops its children
    with mmap.mmap(STATUS_FD, page.SIZE) as shared:
        os.close(STATUS_FD)
        try:
            with contextlib.closing(StatusWriter(memoryview(shared))) as status:
                return _live(spec, status, output)
        except SystemExit as error:  # of a command; Python would print its value
            _end(output, _status_of(error))
        except BaseException as error:  # noqa: BLE001 - whatever a command raised to end it
            sys.excepthook(type(error), error, error.__traceback__)
            _end(output, 1)


def _live(spec: ChildSpec, status: StatusWriter, output: ChildOutput) -> int:
    channel = Channel()
    try:
        runner = CommandRunner(spec)
    except Exception as error:  # noqa: BLE001 - the application's own modules
        channel.send(_start_failed(error))
        output.end()
        return 1
    gc.collect()
    gc.freeze()  # these objects stay until the end
    Loop(spec, status, channel, runner, output).run()
    return 0


def _start_failed(error: Exception) -> protocol.StartFailed:
    """The error for the journal, without values that must not be logged."""
    name, whole = type(error).__name__, shows_messages()
    place = frames(error.__traceback__).partition(" < ")[0]
    text = f"{name}: {error}" if whole or type(error) in _OF_THE_CODE else f"{name} at {place}"
    trace = "".join(traceback.format_exception(error)) if whole else trail(error)
    trace = _IMPORTING.sub("", trace)
    text, trace = (one.encode(errors="backslashreplace").decode() for one in (text, trace))
    return protocol.StartFailed(text[-_TRACE:], trace[-_TRACE:])


def _end(output: ChildOutput, status: int) -> NoReturn:
    """Exit at once: Python would wait for threads of a command, and so would the caller."""
    with contextlib.suppress(Exception):  # a command may have closed them
        output.end()
    os._exit(status & 0xFF)


def _status_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    log.error("the process ends by SystemExit", exc_info=error)
    return 1


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its worker ends. Where it refuses that, the unit's
    cgroup and the end of the channel still end it.
    """
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the worker ended before prctl


if __name__ == "__main__":
    sys.exit(main())
