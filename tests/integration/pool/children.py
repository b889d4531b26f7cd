"""The children of one worker, kept by a thread of the test, and raw connections to them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import msgpack
from msgspec.structs import replace
from tests.waiting import until

from cordata.config.pool import PoolConfig
from cordata.pool.shared import protocol
from cordata.pool.shared.page import ConnectionPage, Status, StatusReader
from cordata.pool.shared.paths import ChildAddress, Place, control_path, parse
from cordata.pool.shared.protocol import (
    Call,
    ChildStatus,
    Failure,
    Hello,
    Packet,
    Result,
    StatusRequest,
    Welcome,
    WorkerStatus,
    batch,
    encode,
)
from cordata.pool.shared.sessions import SessionStore
from cordata.pool.shared.spec import ChildSpec, SessionLimits
from cordata.services.pool_child import PoolChildService
from cordata.unix_socket import socket_address

P = TypeVar("P", bound=Packet)
COMMANDS = "tests.integration.pool.child.commands"
CLIENT = 0x7E57
#: Only reached when it fails; the machine may be busy.
PATIENCE_S = 60.0


def spec_of(path: Path, **fields: Any) -> ChildSpec:
    """A child of worker 0, with all commands of the module."""
    from tests.integration.pool.child import commands

    places = {
        name: f"{COMMANDS}:{name}" for name, value in vars(commands).items() if callable(value)
    }
    spec = ChildSpec(
        place=Place("0"),
        pool="default",
        directory=str(path / "pool" / "default"),
        path=tuple(sys.path),
        commands=places,
        max_frame_bytes=100_000,
        sessions=str(path / "sessions.db"),
        session_limits=SessionLimits(),
    )
    return replace(spec, **fields)


class Peer:
    """One connection to a child."""

    def __init__(self, path: Path, *, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        with socket_address(path) as address:
            self.socket.connect(address)
        file = ConnectionPage.create()
        self.page = ConnectionPage(file)
        self.number = 0
        if greet:
            hello = Hello(protocol.VERSION, CLIENT)
            protocol.send(self.socket, batch([encode(hello)]), [file])
            self.welcome = self.expect(Welcome)
        os.close(file)

    def send(self, packet: Packet) -> None:
        protocol.send(self.socket, batch([encode(packet)]))

    def order(self, command: str, *arguments: Any, timeout_s: float = 30.0, **fields: Any) -> int:
        """Send a call; its number."""
        self.number += 1
        keywords = fields.pop("keywords", {})
        call = Call(
            self.number,
            command,
            list(arguments),
            keywords,
            time.monotonic() + timeout_s,
            fields.pop("id", self.number),
            **fields,
        )
        self.send(call)
        return self.number

    def receive(self) -> Any:
        """The next packet; None: the end of the connection."""
        try:
            data, _ = protocol.receive(self.socket, 2**24)
        except ConnectionResetError:  # it left without reading everything; what it sent comes next
            return self.receive()
        if not data:
            return None
        [message] = protocol.from_child.decode(data)
        return message

    def expect(self, kind: type[P]) -> P:
        found = self.receive()
        assert isinstance(found, kind), found
        return found

    def call(self, command: str, *arguments: Any, **fields: Any) -> Any:
        """The value of its result."""
        number = self.order(command, *arguments, **fields)
        result = self.expect(Result)
        assert result.number == number
        return msgpack.decode(result.value)

    def failure(self, command: str, *arguments: Any, **fields: Any) -> Failure:
        number = self.order(command, *arguments, **fields)
        failure = self.expect(Failure)
        assert failure.number == number
        return failure

    def silent(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)

    def closed(self) -> bool:
        return self.receive() is None

    def close(self) -> None:
        self.socket.close()


class Pool:
    """What a test asks of the children."""

    def __init__(
        self, directory: Path, service: PoolChildService, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.directory = directory
        self.service = service
        self._loop = loop
        self._peers: list[Peer] = []
        self._control: socket.socket | None = None
        self._number = 0

    def names(self) -> list[ChildAddress]:
        """The children that take calls, the oldest one first."""
        files = [file.name for file in self.directory.iterdir()] if self.directory.exists() else []
        found = [parse(self.directory, name) for name in files if name.endswith(".sock")]
        return sorted(
            (name for name in found if name is not None), key=lambda name: name.generation
        )

    def name(self, place: str = "0") -> ChildAddress:
        """The newest child of this place."""
        found = Place.parse(place)
        until(lambda: any(name.place == found for name in self.names()))
        return [name for name in self.names() if name.place == found][-1]

    def connect(self, name: ChildAddress | None = None, *, greet: bool = True) -> Peer:
        peer = Peer((name or self.name()).socket, greet=greet)
        self._peers.append(peer)
        return peer

    def page(self, name: ChildAddress | None = None) -> Status:
        reader = StatusReader.open((name or self.name()).status)
        try:
            return reader.read()
        finally:
            reader.close()

    def ask(self, packet: Packet) -> Any:
        """What the worker answers on its control socket."""
        self.send(packet)
        return self.answer()

    def send(self, packet: Packet) -> None:
        """Ask, on the worker's control socket; `answer` has the answer."""
        if self._control is None:
            until(control_path(self.directory, "0").exists)
            self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control.settimeout(PATIENCE_S)
            with socket_address(control_path(self.directory, "0")) as address:
                self._control.connect(address)
        protocol.send(self._control, encode(packet))

    def answer(self) -> Any:
        """The next one of the worker."""
        assert self._control is not None
        return protocol.to_control_client.decode(protocol.receive(self._control, 2**24)[0])

    def status(self) -> WorkerStatus:
        found = self.ask(StatusRequest(1))
        assert isinstance(found, WorkerStatus)
        return found

    def reload(self, **config: Any) -> None:
        """Other limits, as a worker takes them: in its loop."""
        reload = partial(self.service.reload, PoolConfig(**{**_QUICK, **config}), log_level="DEBUG")
        self._loop.call_soon_threadsafe(reload)

    def child(self) -> ChildStatus:
        """The worker's word on its only child."""
        [child] = self.status().children
        return child

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        if self._control is not None:
            self._control.close()


#: Nothing that a busy machine could take for a fault of the child.
_QUICK = {
    "restart_first_s": 0.01,
    "restart_max_s": 0.05,
    "kill_grace_s": 0.3,
    "health_timeout_s": PATIENCE_S,
}


@contextmanager
def children(path: Path, *, spec: dict[str, Any] | None = None, **config: Any) -> Iterator[Pool]:
    """The children of worker 0, while inside; at the end they leave as at a worker's stop."""
    of_child = spec_of(path, **(spec or {}))
    fields = {**_QUICK, **config}
    started = threading.Event()
    holder: dict[str, Any] = {}

    async def keep() -> None:
        stop = asyncio.Event()
        store = SessionStore(path / "sessions.db", SessionLimits())
        service = PoolChildService(of_child, PoolConfig(**fields), store)
        holder.update(service=service, stop=stop, loop=asyncio.get_running_loop())
        started.set()
        await service.run(stop)

    def run() -> None:
        try:
            asyncio.run(keep())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            holder["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    pool = Pool(Path(of_child.directory), holder["service"], holder["loop"])
    try:
        yield pool
    finally:
        with suppress(RuntimeError):  # its loop may have ended by an error
            holder["loop"].call_soon_threadsafe(holder["stop"].set)
        thread.join(PATIENCE_S)
        pool.close()
        assert not thread.is_alive(), "the children do not end"
    if "error" in holder:
        raise holder["error"]


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    return False
