"""Messages of every role in any order, each well formed: no step that the manager cannot take.

What a peer says at the wrong time may end its connection, and nothing else; at the end no table of
the manager remembers anybody.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, msgpack
from tests.integration.pool.inside import PID, Inside, inside
from tests.integration.pool.managing import START

from cordata.core.frame import Splitter
from cordata.core.pool.codec import encode
from cordata.core.pool.limits import PoolLimits, Rules
from cordata.core.pool.message import (
    Ask,
    Bye,
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    Delta,
    End,
    ErrorFrame,
    GlobalOp,
    Hello,
    Message,
    Ping,
    Result,
    SessionOp,
)
from cordata.core.pool.order import Back, ChildEvent, Drain, Ready, TakenBack
from cordata.core.pool.shelf import SessionLimits

ROLES = ("client", "operator", "worker", "child", "child", "child")
#: The smallest graces, so that deadlines, kills and pauses of poison come about, too.
RULES = Rules(
    poison_limit=2, poison_pause_s=0.1, cancel_grace_s=0.05, kill_grace_s=0.05, exit_report_s=0.05
)
SESSIONS = SessionLimits(max_sessions=3, max_session_bytes=200)


def raw(value: object) -> Raw:
    return Raw(msgpack.encode(value))


class Anybody:
    """One connection, of whatever role. It never waits: what does not fit is not said."""

    def __init__(self, here: Inside, chance: random.Random) -> None:
        self.chance, self.role = chance, chance.choice(ROLES)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(here.path))
        self.socket.setblocking(False)
        self.splitter = Splitter()
        #: Of a child: the call in hand, and those ahead.
        self.runs: deque[dict[str, Any]] = deque()
        ours = self.role in ("worker", "child")
        hello = Hello(
            role=self.role,  # type: ignore[arg-type]
            name=chance.choice("01"),
            pid=PID if ours else 0,
            start=START + chance.randrange(4) if ours else 0,
            cmds=["echo"],
            spare=chance.random() < 0.3,
            warm=chance.random() < 0.7,
            max=chance.choice([100_000, 100_000, 100_000, 500, 0]),
        )
        self.socket.send(encode(hello))

    def act(self) -> bool:
        """Read, say something; False: the connection has ended."""
        try:
            self._read()
            pick = self.chance.choice
            if self.role == "child":
                said = pick(OF_CHILD)(self)
            elif self.role == "worker":
                said = pick(OF_WORKER)(self)
            else:
                said = pick(OF_CLIENT)(self)
            self.socket.send(encode(said))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return self.chance.random() > 0.01

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        for frame in self.splitter.feed(data):
            assert isinstance(frame, bytes)
            found = msgspec.msgpack.decode(frame[4:])
            if found["t"] == "run":
                self.runs.append(found)

    def some(self, *values: Any) -> Any:
        return self.chance.choice(values)

    def number(self) -> int:
        return self.chance.randrange(5)

    def in_hand(self) -> int:
        """The call in hand, mostly."""
        id = self.runs.popleft()["id"] if self.runs else 0
        return id if self.chance.random() < 0.95 else self.number()

    def ahead(self) -> int:
        """The number of a run that was sent, mostly of the last one, which is given back then."""
        order = self.runs.pop().get("o", 0) if self.runs else 0
        return order if self.chance.random() < 0.95 else self.number()

    def delta(self) -> Delta | None:
        large = raw("x" * self.some(1, 5000))
        delta = Delta(v=self.number(), set={"k": raw(1)}, cnt={"c": 1}, gset={"g": large})
        return delta if self.chance.random() < 0.5 else None


OF_CLIENT: list[Callable[[Anybody], Message]] = [
    *[
        lambda one: CallFrame(
            one.number(),
            one.some("echo", "echo", "echo", "nothing"),
            raw("x" * one.some(0, 10, 90_000)),
            session=one.some("", "", "a", "b"),
            timeout_s=one.some(None, 0.0, 0.05, 0.5, 1e9),
            queue_timeout_s=one.some(None, 0.0, 0.02),
            idempotent=one.some(True, False),
            priority=one.some(0, 9),
            credits=one.some(0, 0, 1, 1024),
            attempts=one.some(0, 5),
        )
    ]
    * 4,
    lambda one: Credit(one.number(), one.some(1, 1024)),
    lambda one: Cancel(one.number(), hard=one.some(True, False)),
    lambda one: SessionOp(
        one.number(),
        one.some("create", "get", "update", "delete", "touch", "count"),
        one.some("", "a", "b"),
        ttl=one.some(None, 0.0, 0.05, 1e9),
        set={"k": raw("x" * one.some(1, 300))},
        delete=["k"],
        aff=one.some("", "hint", "strict_queue", "strict_fail"),
        wk=one.some(None, "", "0", "1", "9"),
        by={"c": one.some(1, -1, 2**63 - 1)},
        peek=one.some(True, False),
    ),
    lambda one: GlobalOp(
        one.number(),
        one.some("get", "set", "delete"),
        set={one.some("", "a", "é" * 99): raw("x" * one.some(1, 5000))},
        delete=["a"],
        keys=["a"],
    ),
    lambda one: Ask(
        one.number(),
        one.some("status", "sessions", "drain", "undrain", "recycle"),
        one.some("0", "1", "9"),
        after=one.some("", "a"),
        limit=one.some(0, 1, 5, 2**62),
    ),
    lambda one: one.some(Bye(), *[Ping(1)] * 50),
    lambda one: one.some(Hello(role="client"), *[Ping(1)] * 50),
]
OF_CHILD: list[Callable[[Anybody], Message]] = [
    *[lambda one: Result(one.in_hand(), raw("y" * one.some(1, 90_000)), x=5, u=one.delta())] * 3,
    lambda one: End(one.in_hand(), u=one.delta()),
    lambda one: Chunk(one.runs[0]["id"] if one.runs else 0, raw(1)),
    lambda one: Back(one.ahead()),
    lambda one: ErrorFrame(one.in_hand(), "failed", "no"),
    lambda one: Ready(),
]
OF_WORKER: list[Callable[[Anybody], Message]] = [
    lambda one: ChildEvent(
        one.some("started", "exited", "unhealthy", "warm", "due", "retired", "measured"),
        pid=PID,
        start=START + one.chance.randrange(4),
        why=one.some("", "spare", "stop", "deadline", "max_calls: 3 calls"),
        code=one.some(None, 3),
        sig=one.some(None, 9),
        n=one.chance.randrange(100),
        run=one.some(True, False),
        rss=one.some(0, 5),
    ),
    lambda one: TakenBack(
        PID, START + one.chance.randrange(4), one.number() + one.number(), one.number()
    ),
    lambda one: Drain(one.some(True, False)),
]


def remembered(here: Inside) -> dict[str, int]:
    """How much each table holds."""
    dispatcher = here.hub.dispatcher
    found = {
        "links": len(here.hub.links),
        "children": len(dispatcher.registry.by_pid),
        "workers": len(dispatcher.registry.by_worker),
        "deadlines": len(dispatcher.wheel),
        "waiting": sum(waiting.count for waiting in dispatcher.waiting.values()),
        "idle": sum(len(idle) for idle in dispatcher.registry.idle.values()),
        "strangers": len(here.hub.strangers) + len(here.hub.blocked) + len(here.hub.ending),
    }
    return {name: size for name, size in found.items() if size}


@pytest.mark.parametrize("seed", range(3))
async def test_manager_takes_every_message_in_any_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    limits = {"default": PoolLimits(max_waiting=20, fair=bool(seed % 2))}
    async with inside(
        tmp_path,
        pools=limits,
        rules=RULES,
        sessions=SESSIONS,
        max_frame_bytes=100_000,
        max_globals_bytes=10_000,
    ) as here:
        people: list[Anybody] = []
        for turn in range(8000):
            if len(people) < 12:
                people.append(Anybody(here, chance))
            one = chance.choice(people)
            if not one.act():
                one.socket.close()
                people.remove(one)
            if turn % 3 == 0:
                await asyncio.sleep(0)
            if turn % 200 == 0:
                await asyncio.sleep(0.01)
                here.server.status()
            assert not broken, broken
        status = here.server.status()
        for one in people:
            one.socket.close()
        await here.until(lambda: not remembered(here), timeout_s=5.0)
    assert not broken, broken
    assert {"ok", "deadline", "crashed", "cancelled", "no_session"} <= status["outcomes"].keys()
