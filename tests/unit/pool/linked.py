"""The manager's peers without sockets: a recorder in place of each connection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, msgpack

from cordata.core.pool.codec import encode
from cordata.core.pool.limits import PoolLimits, Rules
from cordata.core.pool.message import CallFrame, Hello, Message
from cordata.core.pool.registry import Child
from cordata.core.pool.shelf import SessionLimits
from cordata.pool.fingerprint import start_of
from cordata.pool.server.childlink import ChildPeer
from cordata.pool.server.clientlink import ClientPeer
from cordata.pool.server.effects import LinkEffects
from cordata.pool.server.greeting import Greeting
from cordata.pool.server.hub import Hub, ServerLimits
from cordata.pool.server.journal import Journal
from cordata.pool.server.link import Link
from cordata.pool.server.report import Report
from cordata.pool.server.workerlink import WorkerPeer

T = TypeVar("T")
PID, START = os.getpid(), start_of()


def raw(value: object) -> Raw:
    return Raw(msgpack.encode(value))


class NoFile:
    """Sessions are not what these tests are about."""

    degraded = False

    def append(self, changes: Sequence[object]) -> None:
        pass

    def flush(self) -> None:
        pass


class Recorder:
    """A connection: what was said over it, and what became of it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.pid, self.uid = PID, os.geteuid()
        self.max_bytes = 1_000_000
        self.trusted = False
        self.peer: Any = Greeting(cast(Link, self))
        self.said: list[dict[str, Any]] = []
        self.closed = self.aborted = self.cut = False
        #: What was sent over it, and the manager has not read.
        self.unread: list[Message] = []
        #: Pauses without their resume.
        self.paused = 0
        hub.links.add(cast(Link, self))

    @property
    def ours(self) -> bool:
        return self.uid in (0, os.geteuid())

    def send(self, frame: bytes) -> None:
        self.said.append(msgspec.msgpack.decode(frame[4:]))

    def say(self, message: Message) -> None:
        self.send(encode(message))

    def refuse(self, code: str, text: str, **data: object) -> None:
        self.said.append({"t": "refused", "code": code, "m": text, **data})
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None:
        self.paused -= 1

    def keep(self) -> None:
        """It is always kept here."""

    def read_rest(self) -> None:
        while self.unread:
            self.take(self.unread.pop(0))

    def forget(self) -> None:
        self.unread.clear()

    def take(self, message: Message) -> None:
        """It sends this."""
        self.peer.take(encode(message))

    def heard(self) -> dict[str, Any]:
        """The one thing that was said since the last time."""
        (found,) = self.said
        self.said.clear()
        if found["t"] == "error":
            found.setdefault("code", "protocol")  # the default is not sent
        return found

    def kinds(self) -> list[str]:
        """What was said since the last time, by type."""
        found = [one["t"] for one in self.said]
        self.said.clear()
        return found


class Linked:
    """A hub, and whoever is connected to it. Needs the running loop of an async test."""

    def __init__(self, **rules: float) -> None:
        limits = ServerLimits(
            pools={"default": PoolLimits(call_timeout_s=10.0)},
            rules=Rules(**{"kill_grace_s": 1.0, **rules}),  # type: ignore[arg-type]
            sessions=SessionLimits(),
            max_frame_bytes=1_000_000,
            max_globals_bytes=1000,
            max_connections=8,
        )
        effects = LinkEffects()
        self.hub = effects.hub = Hub(limits, effects, cast(Journal, NoFile()))
        effects.report = Report(self.hub)
        self.hub.now = 100.0

    def stranger(self) -> Recorder:
        return Recorder(self.hub)

    def connected(self, role: str, **fields: Any) -> Recorder:
        """Somebody who said hello; the welcome is not told."""
        found = self.stranger()
        fields = {"name": "0", "pid": PID, "start": START, "cmds": ["echo"], **fields}
        found.take(Hello(role=role, **fields))  # type: ignore[arg-type]
        assert found.said.pop(0)["t"] == "welcome", found.said
        return found

    def client(self) -> Recorder:
        found = self.connected(
            "client", start=0
        )  # it is not the child, as which this process plays
        assert isinstance(found.peer, ClientPeer)
        return found

    def child(self, **fields: Any) -> Recorder:
        found = self.connected("child", **{"warm": True, **fields})
        assert isinstance(found.peer, ChildPeer)
        return found

    def worker(self, **fields: Any) -> Recorder:
        found = self.connected("worker", **fields)
        assert isinstance(found.peer, WorkerPeer)
        return found

    def running(self, client: Recorder, child: Recorder, id: int = 1, **fields: Any) -> None:
        """The client's call is in the child's hands."""
        client.take(CallFrame(id, "echo", **fields))
        assert child.heard()["t"] == "run"

    def row(self) -> Child:
        """The only child."""
        (found,) = self.hub.dispatcher.registry.by_pid.values()
        return found
