"""What clients and children may say at any time, and what the manager does with it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import msgpack
from tests.unit.pool.linked import Linked, raw

from cordata.core.frame import TooLarge, pack
from cordata.core.pool.globals import UNSURE
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
    Ping,
    Result,
    SessionOp,
)
from cordata.core.pool.order import Ready
from cordata.errors import ProtocolError
from cordata.pool.server.childlink import ChildPeer


def large(kind: str, id: int | None) -> TooLarge:
    return TooLarge(length=2_000_000, kind=kind, id=id, skippable=True)


# Clients.


async def test_client_goes_on_after_what_is_no_message() -> None:
    here = Linked()
    client = here.client()
    client.peer.take(pack(msgpack.encode({"t": "call", "id": 7, "c": 5})))
    said = client.heard()
    assert (said["id"], said["code"]) == (7, "protocol")
    assert here.hub.counting.protocol_errors == 1
    client.take(Ping(8))
    assert client.heard() == {"t": "pong", "id": 8}


async def test_client_is_told_what_it_may_not() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    here.running(client, child)
    client.take(CallFrame(1, "echo"))
    said = client.heard()
    assert ("id" not in said, said["code"]) == (True, "protocol")
    client.take(Ask(2, "status"))
    assert client.heard()["code"] == "forbidden"
    with pytest.raises(ProtocolError, match="second hello"):
        client.take(Hello(role="client"))
    client.peer.too_large(large("call", 3))
    said = client.heard()
    assert (said["id"], said["code"], said["data"]["limit_bytes"]) == (
        *(3, "frame_too_large"),
        1_000_000,
    )


@pytest.mark.parametrize("how", ["answered", "failed", "idle"])
async def test_client_that_said_bye_is_closed_with_its_last_answer(how: str) -> None:
    here = Linked()
    client, child = here.client(), here.child()
    if how != "idle":
        here.running(client, child)
    client.take(Bye())
    assert client.closed == (how == "idle")
    client.take(CallFrame(2, "echo"))
    assert client.heard()["code"] == "closed"
    if how == "answered":
        child.take(Result(1))
        assert client.kinds() == ["result"]
    elif how == "failed":
        client.take(Cancel(1))
        assert client.kinds() == ["error"]
    assert client.closed


async def test_answer_that_the_client_does_not_take_is_an_error_of_its_number() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    client.max_bytes = 100
    here.running(client, child)
    child.take(Result(1, raw("x" * 200)))
    said = client.heard()
    assert (said["id"], said["code"]) == (1, "frame_too_large")
    assert said["data"]["length_bytes"] > 200 and said["data"]["limit_bytes"] == 100
    client.take(GlobalOp(2, "set", set={"a": raw("x" * 200)}))
    client.kinds()
    client.take(GlobalOp(3, "get"))
    said = client.heard()
    assert (said["id"], said["code"]) == (3, "frame_too_large")


async def test_credit_is_for_streams_that_run_and_kept_for_those_that_wait() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    client.take(Credit(9, 5))
    here.running(client, child)
    client.take(Credit(1, 5))  # it is no stream
    client.take(CallFrame(2, "echo", credits=1))
    client.take(Credit(2, 5))
    assert child.said == []
    child.take(Result(1))
    assert child.heard()["w"] == 6
    client.take(Credit(2, 7))
    assert child.heard() == {"t": "credit", "id": 2, "n": 7}
    here.row().conn = None  # it has just gone
    client.take(Credit(2, 7))
    assert (child.said, client.closed) == ([], False)


async def test_goodbye_of_the_manager_is_said() -> None:
    client = Linked().client()
    client.peer.go_away()
    assert client.heard() == {"t": "goaway", "why": "stop"}


async def test_blocked_client_is_not_read_and_holds_the_child_that_streams_to_it() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    client.peer.blocked(True)
    assert client.paused == 1
    here.running(client, child, credits=9)
    assert child.paused == 0  # until it says something
    child.take(Chunk(1, raw(1)))
    assert child.paused == 1
    client.peer.blocked(False)
    assert (client.paused, child.paused) == (0, 0)
    client.peer.blocked(True)
    assert child.paused == 1
    client.take(Cancel(1))  # what it streams from now on goes nowhere
    assert child.paused == 0


async def test_child_is_read_again_when_the_blocked_client_goes() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    here.running(client, child, credits=9)
    client.peer.blocked(True)
    assert child.paused == 1
    client.peer.lost()
    assert child.paused == 0
    assert child.kinds() == ["cancel"]


# Children.


@pytest.mark.parametrize(
    "message",
    [
        Result(9),
        End(9),
        Chunk(9),
        ErrorFrame(id=9, code="failed"),
        ErrorFrame(code="protocol", m="I do not understand"),
        Hello(role="child"),
    ],
)
async def test_child_that_says_what_it_may_not_is_thrown_out(message: Any) -> None:
    here = Linked()
    client, child = here.client(), here.child()
    here.running(client, child)
    with pytest.raises(ProtocolError):
        child.take(message)


async def test_parts_of_a_call_that_nobody_waits_for_go_nowhere() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    here.running(client, child, credits=9)
    client.take(Cancel(1))
    client.kinds(), child.kinds()
    child.take(Chunk(1, raw(1)))
    child.take(End(1))
    assert client.said == []
    assert here.hub.counting.chunks == 0


async def test_globals_of_an_abandoned_call_are_not_taken_and_told_to_the_child_anew() -> None:
    here = Linked()
    client, child = here.client(), here.child()
    here.running(client, child)
    client.take(Cancel(1))
    client.kinds(), child.kinds()
    child.take(Result(1, u=Delta(gset={"rate": raw(7)})))
    assert here.hub.globals.data == {}
    assert here.row().globals_version == UNSURE
    here.running(client, child, id=2)
    assert here.row().globals_version == here.hub.globals.version


@pytest.mark.parametrize(
    ("frame", "thrown_out"),
    [
        (large("result", 1), False),
        (large("error", 1), False),
        (large("chunk", 1), True),
        (large("result", 2), True),
        (large("", None), True),
    ],
)
async def test_frame_of_a_child_that_is_too_large(frame: TooLarge, thrown_out: bool) -> None:
    here = Linked()
    client, child = here.client(), here.child()
    here.running(client, child, credits=1)
    if thrown_out:
        with pytest.raises(ProtocolError):
            child.peer.too_large(frame)
        return
    child.peer.too_large(frame)
    said = client.heard()
    assert (said["id"], said["code"]) == (1, "frame_too_large")
    here.running(client, child, id=2)  # it is free again


async def test_too_large_frame_of_an_idle_child_throws_it_out() -> None:
    with pytest.raises(ProtocolError):
        Linked().child().peer.too_large(large("result", 1))


async def test_child_that_was_never_registered_may_go() -> None:
    here = Linked()
    ChildPeer(here.stranger(), Hello(role="child")).lost()  # type: ignore[arg-type]
    assert not here.hub.dispatcher.registry.by_pid


async def test_cold_child_is_ready_when_it_says_so_and_once() -> None:
    here = Linked()
    client, child = here.client(), here.child(warm=False)
    client.take(CallFrame(1, "echo"))
    assert child.said == []
    child.take(Ready())
    assert child.kinds() == ["run"]
    child.take(Ready())
    assert (child.said, here.row().state.value) == ([], "busy")


async def test_run_that_the_child_does_not_take_is_the_callers_failure_alone() -> None:
    """The child has not heard of the session then, and is free."""
    here = Linked()
    client, child = here.client(), here.child()
    client.take(SessionOp(1, "create", "s", set={"v": raw("x" * 500)}))
    client.kinds()
    child.max_bytes = 300
    client.take(CallFrame(2, "echo", session="s"))
    assert client.heard()["code"] == "frame_too_large"
    assert (child.said, here.row().copies, here.row().state.value) == ([], {}, "ready")
    child.max_bytes = 3000
    client.take(CallFrame(3, "echo", session="s"))
    assert child.heard()["s"]["full"] == {"v": "x" * 500}
