"""A real child answers what its manager has it run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, msgpack
from tests.integration.pool.child.born import (
    COMMANDS,
    born,
    call,
    failure,
    order,
    result,
    serving,
    value,
)
from tests.integration.pool.peer import Listening

from cordata.core.pool.message import Cancel, Chunk, Credit, Delta, End, ErrorFrame, Result
from cordata.core.pool.order import GlobalsCopy, Ready, SessionCopy, Up

PAYLOADS = [None, True, -7, 1.5, "ü", b"\x00", [1, [2]], {"a": {"b": None}}]


def test_child_gives_back_what_it_gets(tmp_path: Path) -> None:
    with serving(tmp_path) as (child, peer):
        for number, payload in enumerate(PAYLOADS, 1):
            answer = result(peer, "echo", payload, id=number)
            assert (answer.id, value(answer), answer.u) == (number, payload, None)
        hand = child.idle()
        assert (hand.done, hand.serial) == (len(PAYLOADS), 100 + len(PAYLOADS))


def test_command_knows_its_call(tmp_path: Path) -> None:
    inits = (f"{COMMANDS}:warm_up", f"{COMMANDS}:warm_up_async")
    with serving(tmp_path, inits=inits) as (child, peer):
        for number in (1, 2):
            about = call(peer, "about", id=number, n=9, request_id="r-1", d=5.0)
            assert 4.5 < about.pop("remaining") <= 5.0
            assert about == {
                "id": "0000000000000000-9",
                "command": "about",
                "request_id": ["r-1", "r-1"],
                "cancelled": False,
                "warmed": ["sync", "async"],
                "pid": child.pid,
                "left": "nothing",
                "session": None,
            }


def test_async_commands_share_one_loop(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        first = call(peer, "about_async", request_id="r-2", s=SessionCopy(id="s", full={}))
        assert first[:2] == ["about_async", "r-2"]
        assert first[3:] == [["s", True], ["about_async", "r-2"]]
        assert call(peer, "about_async", request_id="r-3")[3:] == [None, ["about_async", "r-3"]]
        assert call(peer, "about_async")[2] == first[2]
        assert call(peer, "numbers_async", 3) == [0, 1, 2]
        assert call(peer, "wait_async", 0.0) == "done"


def test_error_tells_type_text_and_trace(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        error = failure(peer, "fail", "value", id=7)
        assert (error.id, error.code, error.m) == (7, "failed", "no value \\udcff")
        assert (error.data["type"], error.data["permanent"]) == ("ValueError", False)
        trace = error.data["traceback"]
        assert "commands.py" in trace and "calling.py" not in trace
        error = failure(peer, "fail", "fault")
        assert (error.data["type"], error.data["permanent"]) == (f"{COMMANDS}.Fault", True)
        error = failure(peer, "fail", "long")
        assert (len(error.m), len(error.data["traceback"])) == (4096, 16384)
        assert failure(peer, "fail_async").m == "later"
        assert "object" in failure(peer, "odd").m
        assert failure(peer, "nothing").code == "unavailable"
        for command in ("large", "numbers"):
            error = failure(peer, command, 100_001)
            assert (error.code, "max_frame_bytes" in error.m) == ("frame_too_large", True)
            assert error.data["length_bytes"] > error.data["limit_bytes"] == 100_000
        assert len(call(peer, "large", 99_000)) == 99_000


def test_error_fits_where_frames_are_small(tmp_path: Path) -> None:
    with serving(tmp_path, max_frame_bytes=1024) as (child, peer):
        error = failure(peer, "fail", "long")
        assert error.data.get("type") == "ValueError"
        assert child.idle().done == 1


def test_stream_waits_for_credit(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        for command in ("numbers", "numbers_async"):
            peer.send(order(command, 3, credits=1))
            assert msgpack.decode(peer.expect(Chunk).payload) == 0
            assert peer.silent(0.1)
            peer.send(Credit(id=2, n=5))  # another call's
            assert peer.silent(0.05)
            peer.send(Credit(id=1, n=5))
            assert [msgpack.decode(peer.expect(Chunk).payload) for _ in "ab"] == [1, 2]
            assert peer.expect(End).id == 1
        assert call(peer, "numbers", 3) == [0, 1, 2]
        peer.send(order("echo", "one", credits=4))
        assert msgpack.decode(peer.expect(Chunk).payload) == "one"
        peer.expect(End)


def test_cancelled_stream_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path) as (child, peer):
        peer.send(order("endless", id=4, credits=2))
        peer.expect(Chunk), peer.expect(Chunk)
        peer.send(Cancel(id=4))
        assert peer.expect(ErrorFrame).code == "cancelled"
        child.written("closed")
        peer.send(order("endless", id=5, credits=1, d=0.2))
        peer.expect(Chunk)
        error = peer.expect(ErrorFrame)
        assert (error.code, error.data) == ("deadline", {"ran": True})
        assert call(peer, "echo", 1) == 1


@pytest.mark.parametrize(("command", "answer"), [("wait", Result), ("wait_async", ErrorFrame)])
def test_cancelled_command_is_told(tmp_path: Path, command: str, answer: Any) -> None:
    with serving(tmp_path) as (_, peer):
        peer.send(order(command, 30.0, id=4))
        peer.send(Cancel(id=4))
        assert peer.expect(answer).id == 4
        peer.send(Cancel(id=4))  # too late: it was answered
        assert call(peer, "echo", 1, id=4) == 1


def test_async_command_ends_at_its_deadline(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        assert failure(peer, "wait_async", 30.0, d=0.05).code == "deadline"
        error = failure(peer, "echo", d=0.0)
        assert (error.code, error.data) == ("deadline", {"ran": False})


def _values(**values: Any) -> dict[str, Raw]:
    return {key: Raw(msgpack.encode(value)) for key, value in values.items()}


def _plain(delta: Delta | None) -> Any:
    assert delta is not None
    data = {key: msgpack.decode(raw) for key, raw in delta.set.items()}
    return delta.v, data, delta.delete, delta.cnt


def test_session_stays_and_its_changes_come_back(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        copy = SessionCopy(id="s", v=7, full=_values(a=1, b=[2]), cnt={"seen": 4})
        orders = {"set": {"c": 3}, "del": ["a"], "count": {"seen": 1, "never": 0}}
        answer = result(peer, "remember", orders, s=copy)
        assert value(answer)["data"] == {"a": 1, "b": [2]}
        assert _plain(answer.u) == (7, {"c": 3}, ["a"], {"seen": 1})
        kept = SessionCopy(id="s", v=8)
        error = failure(peer, "remember", {"set": {"b": 0}, "fail": True}, s=kept)
        assert error.code == "failed"
        answer = result(peer, "remember", {}, s=kept)
        assert value(answer)["data"] == {"b": [2], "c": 3}
        assert value(answer)["counters"] == {"seen": 5}
        assert answer.u is None
        error = failure(peer, "remember", {}, s=kept, f=["s"])
        assert (error.code, "no data came" in error.m) == ("protocol", True)


def test_stream_changes_its_session_at_its_end(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        peer.send(order("numbers", 2, credits=9, s=SessionCopy(id="s", full={})))
        peer.expect(Chunk), peer.expect(Chunk)
        assert _plain(peer.expect(End).u) == (0, {"last": 1}, [], {})


def test_call_that_changes_very_many_names_fails_and_changes_none(tmp_path: Path) -> None:
    with serving(tmp_path, max_frame_bytes=4_000_000) as (_, peer):
        orders = {"gset": {str(n): n for n in range(65_530)}, "set": {str(n): n for n in range(7)}}
        error = failure(peer, "remember", orders, s=SessionCopy(id="s", full={}))
        assert (error.code, "65536 changes" in error.m) == ("frame_too_large", True)
        answer = result(peer, "remember", {}, s=SessionCopy(id="s"))
        assert value(answer)["data"] == {}


def test_globals_are_what_the_manager_says(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, peer):
        session = SessionCopy(id="s", full={})
        first = GlobalsCopy(v=1, set=_values(a=1, b=2), full=True)
        answer = result(peer, "remember", {"gset": {"c": 3}}, s=session, gl=first)
        assert value(answer)["globals"] == {"a": 1, "b": 2}
        assert answer.u is not None and list(answer.u.gset) == ["c"]
        second = GlobalsCopy(v=2, set=_values(b=5), delete=["a"])
        answer = result(peer, "remember", {}, s=session, gl=second)
        assert value(answer)["globals"] == {"b": 5}


def test_child_comes_back_with_empty_hands(tmp_path: Path) -> None:
    with Listening(tmp_path / "pool.sock") as manager, born(manager, spare=True) as child:
        peer, hello = manager.welcome()
        assert (hello.spare, hello.warm) == (True, False)
        child.channel.expect(Up)
        peer.expect(Ready)
        peer.send(order("wait", 30.0))
        while not child.hand.busy:
            time.sleep(0.005)
        peer.send(order("echo", id=2))  # nobody's, once the connection is gone
        peer.close()
        peer, hello = manager.welcome()
        assert (hello.spare, hello.warm) == (True, True)
        assert child.hand.done == 1 and not child.hand.busy
        assert peer.silent(0.1)  # neither an answer nor `ready`
        assert call(peer, "echo", 5, id=3) == 5
        peer.raw(b"\x00\x00\x00\x01\xc0")  # no map: another connection
        assert peer.closed()
        peer.close()
        peer, hello = manager.welcome()
        assert hello.warm
        assert call(peer, "about")["pid"] == child.pid
        peer.close()
