"""The control socket of a worker: answers requests while its children compute.

Clients ask how a child died, have a call killed, and use sessions and globals; operators ask for
the status, drain and recycle. Session requests run in a thread, because the file may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from cordata.errors import CordataError, FrameTooLarge, PoolError, ProtocolError, is_transient
from cordata.log import logger
from cordata.pool.shared import protocol
from cordata.pool.shared.paths import control_path
from cordata.pool.shared.protocol import (
    Death,
    DeathRequest,
    Failure,
    FromControlClient,
    GlobalRequest,
    KillRequest,
    Packet,
    Reply,
    SessionRequest,
    StatusRequest,
    WorkerOrder,
    WorkerStatus,
    encode,
    from_control_client,
)
from cordata.pool.shared.sessions import SessionStore, answer
from cordata.pool.worker.child_supervisor import ChildSupervisor
from cordata.pool.worker.spawning import clean_directory, make_directory
from cordata.unix_socket import socket_address

log = logger("cordata.pool")

#: Pause between two deletions of expired sessions.
_SWEEP_S = 60.0
#: Session requests that may wait for the thread; further ones are refused.
_MAX_WAITING = 10_000
#: Pause before the next accept when the process had no free descriptor.
_ACCEPT_AGAIN_S = 0.1
_CREDENTIALS = struct.Struct("3i")


class ControlServer:
    """The control socket of one worker. `supervisors`: one for each of its children."""

    def __init__(self, supervisors: Sequence[ChildSupervisor], store: SessionStore) -> None:
        self._supervisors = supervisors
        self._spec = supervisors[0].spec
        self._worker = self._spec.place.worker
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, socket.socket] = {}
        self._requests: asyncio.Queue[tuple[socket.socket, SessionRequest | GlobalRequest]] = (
            asyncio.Queue(_MAX_WAITING)
        )

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take requests in the block; `serve_sessions` answers those for sessions.

        Raises: OSError; CordataError when another process runs as this worker.
        """
        directory = Path(self._spec.directory)
        make_directory(directory)
        with _only_one(directory, self._worker):
            clean_directory(directory, self._worker)
            with _listen(control_path(directory, self._worker)) as listener:
                self._listen(listener)
                try:
                    yield
                finally:
                    self._loop.remove_reader(listener)
                    for sock in list(self._connections.values()):
                        self._close(sock)

    async def serve_sessions(self) -> None:
        """Answer session requests until cancelled."""
        while True:
            sock, request = await self._requests.get()
            if sock.fileno() >= 0:
                self._send(sock, await asyncio.to_thread(self._answer, request))

    async def sweep(self) -> None:
        """Delete expired sessions until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            with contextlib.suppress(PoolError):  # the next session request reports it
                await asyncio.to_thread(self._store.sweep)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:
            if is_transient(error):  # no free descriptor: the socket stays readable
                self._loop.remove_reader(listener)
                self._loop.call_later(_ACCEPT_AGAIN_S, self._listen, listener)
            return
        sock.setblocking(False)
        self._connections[sock.fileno()] = sock
        self._loop.add_reader(sock, self._read, sock)

    def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    def _read(self, sock: socket.socket) -> None:
        try:
            while sock.fileno() >= 0:
                data, files = protocol.receive(sock, self._spec.max_frame_bytes)
                protocol.close(files)
                if not data:
                    self._close(sock)
                    return
                self._take(sock, from_control_client.decode(data))
        except BlockingIOError:
            return
        except (ProtocolError, FrameTooLarge) as error:
            limits = error.data if isinstance(error, FrameTooLarge) else {}
            self._send(sock, Failure(0, error.code, str(error), limits))
            self._close(sock)
        except OSError:
            self._close(sock)

    def _take(self, sock: socket.socket, message: FromControlClient) -> None:
        if isinstance(message, DeathRequest):
            self._answer_death(sock, message)
        elif isinstance(message, StatusRequest):
            self._send(sock, self._status(message.number))
        elif isinstance(message, KillRequest):
            grace_s = self._supervisors[0].config.cancel_grace_s
            self._loop.call_later(grace_s, self._kill, message)
            self._send(sock, Reply(message.number))
        elif isinstance(message, WorkerOrder):
            self._follow_order(sock, message)
        elif self._requests.full():
            text = f"{_MAX_WAITING} session requests wait already: try again later"
            self._send(sock, Failure(message.number, "saturated", text))
        else:
            self._requests.put_nowait((sock, message))

    def _answer_death(self, sock: socket.socket, asked: DeathRequest) -> None:
        def answer(death: asyncio.Future[Death]) -> None:
            self._send(sock, replace(death.result(), number=asked.number))

        for supervisor in self._supervisors:
            if (death := supervisor.death(asked.generation)) is not None:
                death.add_done_callback(answer)
                return
        self._send(sock, Death(asked.number, known=False))

    def _kill(self, asked: KillRequest) -> None:
        for supervisor in self._supervisors:
            if supervisor.kill_call(asked.generation, asked.client, asked.call):
                return

    def _follow_order(self, sock: socket.socket, order: WorkerOrder) -> None:
        if _uid_of(sock) not in (0, os.geteuid()):
            text = "only root and the user of the service may do this"
            self._send(sock, Failure(order.number, "denied", text))
            return
        for supervisor in self._supervisors:
            if order.order == "recycle":
                supervisor.recycle()
            else:
                supervisor.drain(order.order == "drain")
        log.info("order of an operator: %s", order.order)
        self._send(sock, Reply(order.number))

    def _status(self, number: int) -> WorkerStatus:
        supervisors = self._supervisors
        return WorkerStatus(
            number,
            worker=self._worker,
            pool=self._spec.pool,
            pid=os.getpid(),
            drained=supervisors[0].drained,
            started=sum(supervisor.started for supervisor in supervisors),
            crashed=sum(supervisor.crashed for supervisor in supervisors),
            killed=sum(supervisor.killed for supervisor in supervisors),
            start_error=next((s.start_error for s in supervisors if s.start_error), ""),
            commands=sorted(self._spec.commands),
            children=[child for supervisor in supervisors for child in supervisor.report()],
        )

    def _answer(self, request: SessionRequest | GlobalRequest) -> Packet:
        """Carry out the request; runs in a thread."""
        try:
            return answer(self._store, request)
        except PoolError as error:
            return Failure(request.number, error.code, str(error))
        except Exception:
            log.exception("a session request failed")
            return Failure(request.number, "pool", "the worker could not answer; its log says why")

    def _send(self, sock: socket.socket, packet: Packet) -> None:
        if sock.fileno() < 0:
            return
        try:
            protocol.send(sock, encode(packet))
        except OSError:  # also: the socket of a client that reads no answers is full
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        if self._connections.pop(sock.fileno(), None) is not None:
            self._loop.remove_reader(sock)
            sock.close()


@contextlib.contextmanager
def _only_one(directory: Path, worker: str) -> Iterator[None]:
    """In the block no other process runs as this worker of the directory. Raises: CordataError."""
    file = os.open(directory / f"{worker}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"another process runs as worker {worker} of {directory}"
            hint = "stop it first; a second server needs a --state and [paths] runtime of its own"
            raise CordataError(text, hint=hint) from None
        yield
    finally:
        os.close(file)


@contextlib.contextmanager
def _listen(path: Path) -> Iterator[socket.socket]:
    """The control socket; clients see it once it listens. It is removed at the end."""
    hidden = path.with_name(f".{path.name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.setblocking(False)
        for file in (path, hidden):  # left behind by a worker that was killed
            file.unlink(missing_ok=True)
        try:
            with socket_address(hidden) as address:
                listener.bind(address)
            hidden.chmod(0o660)
            listener.listen(1024)
            hidden.rename(path)
            yield listener
        finally:
            for file in (path, hidden):
                file.unlink(missing_ok=True)


def _uid_of(sock: socket.socket) -> int:
    """User id of the connected process (unix(7), SO_PEERCRED)."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])
