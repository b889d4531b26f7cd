"""Who may be what: the handshake; then what workers and operators say and are told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import msgpack
from tests.unit.pool.linked import PID, START, Linked

from cordata.core.frame import TooLarge, pack
from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Hello,
    Result,
)
from cordata.core.pool.order import ChildEvent, Drain, Ready, Recycle
from cordata.errors import ProtocolError

LARGE = TooLarge(length=2_000_000, kind="", id=None, skippable=True)


# The handshake.


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"role": "client", "v": 9, "vmin": 2}, "version", "versions 2 to 9"),
        ({"role": "client", "pid": PID + 1}, "protocol", f"has {PID}"),
        ({"role": "worker", "name": "", "pid": PID}, "protocol", "needs a name"),
        ({"role": "child", "name": "0", "pid": 0}, "protocol", "needs a name"),
        ({"role": "child", "name": "0", "pid": PID, "start": START - 9}, "protocol", "no more"),
    ],
    # Not by their texts: the number of this process is another one in each of pytest's.
    ids=["version", "another's pid", "worker without name", "child without pid", "not that child"],
)
async def test_hello_is_refused(fields: dict[str, Any], code: str, text: str) -> None:
    stranger = Linked().stranger()
    stranger.take(Hello(**fields))
    said = stranger.heard()
    assert (said["code"], text in said["m"], stranger.closed) == (code, True, True)


async def test_hello_of_a_process_that_is_gone_is_refused() -> None:
    stranger = Linked().stranger()
    stranger.pid = 2**30  # more than any process can have
    stranger.take(Hello(role="child", name="0", pid=stranger.pid, start=2**62))
    assert "no more" in stranger.heard()["m"]


async def test_process_of_another_name_space_is_believed() -> None:
    here = Linked()
    stranger = here.stranger()
    stranger.pid = 0
    stranger.take(Hello(role="child", name="0", pid=2**30, start=5))
    assert stranger.kinds() == ["welcome"]
    assert here.row().fingerprint == (2**30, 5)


async def test_connections_of_another_name_space_take_turns_each() -> None:
    here = Linked()
    sources = set()
    for pid in (0, 0, PID, PID):
        client = here.client()
        client.pid = pid
        client.take(CallFrame(1, "echo"))
        sources.add(client.peer.calls[1].source)
    assert len(sources) == 3


@pytest.mark.parametrize("role", ["worker", "child", "operator"])
async def test_another_user_is_a_client_only(role: Any) -> None:
    here = Linked()
    stranger = here.stranger()
    stranger.uid += 4711
    stranger.take(Hello(role=role, name="0", pid=PID, start=START))
    assert stranger.heard()["code"] == "forbidden"
    stranger = here.stranger()
    stranger.uid += 4711
    stranger.take(Hello(role="client"))
    assert stranger.kinds() == ["welcome"]


async def test_client_above_the_limit_is_refused_and_a_child_is_not() -> None:
    here = Linked()
    crowd = [here.client() for _ in range(8)]
    more = here.stranger()
    more.take(Hello(role="client"))
    assert more.heard()["code"] == "saturated"
    assert here.child().peer.child is not None
    assert not any(one.closed for one in crowd)


@pytest.mark.parametrize(
    "data",
    [
        pack(msgpack.encode({"t": "ping", "id": 1})),
        pack(msgpack.encode({"t": "what"})),
        pack(msgpack.encode([1])),
        pack(b"\xc1"),
    ],
)
async def test_first_frame_that_is_no_hello_ends_the_connection(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Linked().stranger().peer.take(data)


async def test_stranger_may_not_be_large_and_may_go_without_a_word() -> None:
    stranger = Linked().stranger()
    with pytest.raises(ProtocolError, match="first frame of 2000000"):
        stranger.peer.too_large(LARGE)
    stranger.peer.blocked(True)
    stranger.peer.lost()
    assert not stranger.said


# Workers.


async def test_worker_is_told_to_kill_and_a_worker_that_is_away_is_not() -> None:
    here = Linked()
    worker, client, child = here.worker(), here.client(), here.child()
    here.running(client, child, timeout_s=1.0)
    for here.hub.now in (101.1, 102.3):
        here.hub.dispatcher.expire(here.hub.now)
    said = worker.heard()
    assert (said["t"], said["why"], said["pid"]) == ("kill", "deadline", PID)
    assert here.row().state.value == "unhealthy"
    worker.peer.lost()
    here.hub.now = 110.0
    here.hub.dispatcher.expire(here.hub.now)
    assert worker.said == []


async def test_worker_says_nothing_else_and_nothing_large() -> None:
    worker = Linked().worker()
    with pytest.raises(ProtocolError, match="second hello"):
        worker.take(Hello(role="worker"))
    with pytest.raises(ProtocolError, match="2000000 bytes from a worker"):
        worker.peer.too_large(LARGE)
    worker.peer.blocked(True)
    assert worker.paused == 0


async def test_worker_tells_of_its_child_and_of_what_it_weighs() -> None:
    here = Linked()
    worker = here.worker()
    worker.take(ChildEvent("started", pid=77, start=5, rss=4096))
    assert (here.row().state.value, here.row().rss_bytes) == ("starting", 4096)
    worker.take(ChildEvent("measured", pid=77, start=5, rss=8192))
    worker.take(ChildEvent("measured", pid=77, start=5))  # it is gone, or was not measured
    worker.take(ChildEvent("measured", pid=78, start=5, rss=1))
    assert here.row().rss_bytes == 8192
    worker.take(ChildEvent("exited", pid=77, start=5, code=1))
    assert here.hub.counting.restarts == {"crash": 1}
    worker.take(Drain())
    assert here.hub.dispatcher.registry.by_worker["0"].draining


async def test_why_no_child_starts_is_known_until_one_is_warm() -> None:
    here = Linked()
    worker = here.worker()
    slot = here.hub.dispatcher.registry.by_worker["0"]
    worker.take(ChildEvent("started", pid=77, start=5))
    worker.take(ChildEvent("exited", pid=77, start=5, code=1, m="ImportError: no fonts"))
    assert slot.start_error == "ImportError: no fonts"
    worker.take(ChildEvent("exited", pid=0, start=0, why="init", m="no process could be started"))
    child = here.child(warm=False)
    assert slot.start_error == "no process could be started"
    assert here.hub.counting.restarts == {"crash": 1}, "there was no other process"
    child.take(Ready())
    assert slot.start_error == ""


async def test_second_connection_of_a_worker_ends_the_first() -> None:
    here = Linked()
    first, second = here.worker(), here.worker()
    assert (first.aborted, second.aborted) == (True, False)
    first.peer.lost()
    assert here.hub.dispatcher.registry.by_worker["0"].conn is second


async def test_alarm_goes_to_one_worker_or_waits_for_one() -> None:
    here = Linked()
    here.hub.alarm("ab", "one")
    here.hub.alarm("ab", "two")
    worker = here.worker()
    assert worker.heard() == {"t": "alarm", "ev": "ab", "m": "two"}
    assert here.worker(name="1").said == []


# Operators.


async def test_operator_orders_and_asks() -> None:
    here = Linked()
    worker, operator = here.worker(), here.connected("operator")
    operator.take(Ask(1, "recycle", "0"))
    assert worker.heard()["t"] == Recycle.__struct_config__.tag
    assert operator.heard()["p"] == {"worker": "0", "child": None}
    worker.peer.lost()
    for op in ("recycle", "drain", "undrain"):
        operator.take(Ask(2, op, "0"))
        assert "there are: none" in operator.heard()["m"]
    operator.take(Ask(3, "sessions", limit=0))
    assert operator.heard()["p"] == {"items": [], "next": None}


async def test_worker_that_is_away_while_its_child_is_there_cannot_recycle() -> None:
    here = Linked()
    here.child()
    operator = here.connected("operator")
    operator.take(Ask(1, "recycle", "0"))
    assert "'0' is not connected" in operator.heard()["m"]
    operator.take(Ask(2, "drain", "0"))
    assert operator.heard()["p"] == {"worker": "0"}


@pytest.mark.parametrize("who", ["worker", "child"])
async def test_answers_that_lie_there_count_before_the_death_of_their_child(who: str) -> None:
    here = Linked()
    worker, child, client = here.worker(), here.child(), here.client()
    here.hub.dispatcher.pace.ran("echo", 50)
    for id in (1, 2, 3):
        client.take(CallFrame(id, "echo"))
    serial = here.row().held()[1].serial
    child.unread.append(Result(1, x=50))  # the first one ended, and the second was begun
    if who == "worker":
        worker.take(ChildEvent("exited", pid=PID, start=START, sig=9, n=serial))
    child.peer.lost()
    if who == "child":
        worker.take(ChildEvent("exited", pid=PID, start=START, sig=9, n=serial))
    assert client.kinds() == ["result", "error"]
    assert here.hub.dispatcher.waiting["default"].count == 1
    assert here.hub.dispatcher.crashes == {"echo": 1}


async def test_answers_over_a_connection_that_we_ended_count_no_more() -> None:
    here = Linked()
    worker, child, client = here.worker(), here.child(), here.client()
    here.hub.dispatcher.pace.ran("echo", 50)
    for id in (1, 2, 3):
        client.take(CallFrame(id, "echo"))
    serial = here.row().held()[1].serial
    child.unread.append(Result(1, x=50))
    child.cut = True
    child.peer.lost()
    worker.take(ChildEvent("exited", pid=PID, start=START, sig=9, n=serial))
    # It may have begun two of them, and answered one; the third it had not.
    assert client.kinds() == ["error", "error"]
    assert here.hub.dispatcher.waiting["default"].count == 1
