"""Sessions and globals of a real manager, and what of them outlives it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.integration.pool.managing import Manager, managed
from tests.integration.pool.peer import Peer

from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Delta,
    ErrorFrame,
    GlobalOp,
    Reply,
    Result,
    SessionOp,
)
from cordata.core.pool.order import Run


def raw(value: Any) -> Raw:
    return Raw(msgspec.msgpack.encode(value))


def plain(values: dict[str, Raw]) -> dict[str, Any]:
    return {key: msgspec.msgpack.decode(value) for key, value in values.items()}


def reply(client: Peer, op: SessionOp | GlobalOp | Ask) -> Reply:
    client.send(op)
    return client.expect(Reply)


def refused(client: Peer, op: SessionOp | GlobalOp) -> str:
    client.send(op)
    return client.expect(ErrorFrame).code


def test_session_lives_through_its_operations(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        made = reply(client, SessionOp(1, "create", set={"a": raw(1)}, ttl=60.0, aff="hint"))
        assert len(made.s) == 32
        id = made.s
        assert refused(client, SessionOp(2, "create", id)) == "session_exists"
        changed = reply(client, SessionOp(3, "update", id, set={"b": raw([2])}, delete=["a"]))
        assert changed.v > made.v
        counted = reply(client, SessionOp(4, "count", id, by={"n": 5}))
        assert (counted.cnt, counted.set) == ({"n": 5}, {})
        found = reply(client, SessionOp(5, "get", id))
        assert (plain(found.set), found.cnt, found.aff) == ({"b": [2]}, {"n": 5}, "hint")
        assert found.ttl is not None and 59 < found.ttl <= 60
        assert reply(client, SessionOp(6, "touch", id, ttl=5.0)).ttl == pytest.approx(5, abs=0.1)
        assert reply(client, SessionOp(7, "delete", id)).s == id
        for op in ("get", "update", "touch", "count", "delete"):
            assert refused(client, SessionOp(8, op, id)) == "no_session"
        counts = manager.status()["sessions"]
        assert (counts["created"], counts["deleted"], counts["count"]) == (1, 1, 0)


def test_session_is_gone_at_read_when_its_time_is_over(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        reply(client, SessionOp(1, "create", "s", ttl=0.2))
        reply(client, SessionOp(2, "get", "s", peek=True))
        time.sleep(0.25)
        assert refused(client, SessionOp(3, "get", "s")) == "no_session"
        client.send(CallFrame(4, "echo", session="s"))
        assert client.expect(ErrorFrame).code == "no_session"


def test_sessions_are_bounded_in_number_and_bytes(tmp_path: Path) -> None:
    settings = "[pool]\nmax_sessions = 1\nmax_session_bytes = 100\nmax_globals_bytes = 1024\n"
    with managed(tmp_path, settings) as manager, manager.client() as client:
        reply(client, SessionOp(1, "create", "s"))
        assert refused(client, SessionOp(2, "create")) == "quota"
        assert refused(client, SessionOp(3, "update", "s", set={"a": raw("x" * 200)})) == "quota"
        assert refused(client, GlobalOp(4, "set", set={"a": raw("x" * 2000)})) == "quota"


def test_child_gets_session_data_only_when_it_changed(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        reply(client, SessionOp(1, "create", "s", set={"a": raw(1)}))
        versions = []
        for id in (2, 3, 4):
            client.send(CallFrame(id, "echo", session="s"))
            run = child.expect(Run)
            assert run.s is not None
            versions.append(run.s.v)
            if id == 2:
                assert plain(run.s.full or {}) == {"a": 1}
            else:
                assert run.s.full is None
            change = Delta(v=run.s.v, set={"a": raw(id)}, cnt={"calls": 1}) if id != 3 else None
            child.send(Result(id, raw("ok"), x=5, u=change))
            answer = client.expect(Result)
            assert answer.u is None and msgspec.msgpack.decode(answer.payload) == "ok"
        assert versions[0] < versions[1] == versions[2]
        found = reply(client, SessionOp(5, "get", "s"))
        assert (plain(found.set), found.cnt, found.wk) == ({"a": 4}, {"calls": 2}, "0")
        reply(client, SessionOp(6, "update", "s", set={"a": raw("other")}))
        client.send(CallFrame(7, "echo", session="s"))
        again = child.expect(Run)
        assert again.s is not None and plain(again.s.full or {}) == {"a": "other"}


def test_globals_reach_the_child_with_its_next_call(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        assert child.expect(Run).gl is None
        child.send(Result(1, u=Delta(gset={"rate": raw(7)})))
        client.expect(Result)
        assert plain(reply(client, GlobalOp(2, "get")).set) == {"rate": 7}
        reply(client, GlobalOp(3, "set", set={"x": raw(1)}))
        client.send(CallFrame(4, "echo"))
        told = child.expect(Run).gl
        assert told is not None and plain(told.set)["x"] == 1
        child.send(Result(4))
        client.expect(Result)
        client.send(CallFrame(5, "echo"))
        assert child.expect(Run).gl is None


def test_globals_that_a_call_may_not_change_are_told_to_its_child_again(tmp_path: Path) -> None:
    settings = "[pool]\nmax_globals_bytes = 1024\n"
    with managed(tmp_path, settings) as manager, manager.child() as child:
        client = manager.client()
        client.send(CallFrame(1, "echo"))
        child.expect(Run)
        child.send(Result(1, u=Delta(gset={"big": raw("x" * 2000)})))
        assert client.expect(ErrorFrame).code == "quota"
        client.send(CallFrame(2, "echo"))
        told = child.expect(Run).gl
        assert told is not None and told.full and told.set == {}
        client.close()


@pytest.mark.parametrize("sizes", [(2000, 1), (1, 2000)])
def test_call_that_changes_session_and_globals_changes_both_or_none(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    settings = "[pool]\nmax_session_bytes = 1024\nmax_globals_bytes = 1024\n"
    with managed(tmp_path, settings) as manager, manager.child() as child:
        with manager.client() as client:
            reply(client, SessionOp(1, "create", "s"))
            client.send(CallFrame(2, "echo", session="s"))
            child.expect(Run)
            of_session, of_globals = (raw("x" * size) for size in sizes)
            child.send(Result(2, u=Delta(set={"n": of_session}, gset={"rate": of_globals})))
            assert client.expect(ErrorFrame).code == "quota"
            assert reply(client, SessionOp(3, "get", "s")).set == {}
            assert reply(client, GlobalOp(4, "get")).set == {}
            status = manager.status()
            assert status["outcomes"] == {"quota": 1}
            client.send(CallFrame(5, "echo", session="s"))
            run = child.expect(Run)
            assert run.gl is not None and run.gl.full and run.gl.set == {}
            assert run.s is not None and run.s.full == {}


def test_operator_sees_when_a_session_was_used_last(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client, manager.dial() as operator:
        operator.hello("operator")
        reply(client, SessionOp(1, "create", "s", ttl=60.0))

        def times() -> tuple[float, float]:
            found = msgspec.msgpack.decode(reply(operator, Ask(1, "sessions")).payload)
            (item,) = found["items"]
            assert item["idle_s"] + item["expires_in_s"] == pytest.approx(60.0, abs=0.11)
            return item["idle_s"], item["expires_in_s"]

        time.sleep(0.6)
        assert times()[0] >= 0.5
        reply(client, SessionOp(2, "get", "s", peek=True))
        assert times()[0] >= 0.5  # a look is no use
        began = time.monotonic()
        reply(client, SessionOp(3, "get", "s"))
        assert times()[0] <= time.monotonic() - began + 0.1


def fill(client: Peer, count: int) -> None:
    for number in range(count):
        reply(client, SessionOp(1, "create", f"s{number}", set={"n": raw(number)}))
        reply(client, SessionOp(2, "count", f"s{number}", by={"seen": number}))
    reply(client, GlobalOp(3, "set", set={"rate": raw(7)}))


def check(client: Peer, numbers: range) -> None:
    for number in numbers:
        found = reply(client, SessionOp(1, "get", f"s{number}"))
        assert (plain(found.set), found.cnt) == ({"n": number}, {"seen": number})
    assert plain(reply(client, GlobalOp(2, "get")).set) == {"rate": 7}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_sessions_and_globals_outlive_the_manager(tmp_path: Path, number: signal.Signals) -> None:
    with managed(tmp_path) as manager:
        with manager.client() as client:
            fill(client, 20)
            reply(client, SessionOp(9, "delete", "s0"))
        manager.end(number)
        manager.start()
        with manager.client() as client:
            check(client, range(1, 20))
            assert refused(client, SessionOp(3, "get", "s0")) == "no_session"
        manager.until_logged("sessions read: 19$")


def test_torn_end_of_the_file_is_cut_off(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        with manager.client() as client:
            fill(client, 5)
        manager.end()
        file = manager.state / "pool" / "sessions.journal"
        whole = file.read_bytes()
        file.write_bytes(whole + whole[12:40])
        manager.start()
        with manager.client() as client:
            check(client, range(5))
        manager.until_logged("the last 28 bytes were torn")
        manager.end()
        assert file.read_bytes()[: len(whole)] == whole


def test_file_with_a_damaged_head_is_put_aside(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "pool"
    directory.mkdir(parents=True)
    (directory / "sessions.journal").write_bytes(b"what is this?")
    with managed(tmp_path) as manager, manager.client() as client:
        reply(client, SessionOp(1, "create", "s"))
        manager.until_logged("put aside")
        assert (directory / "sessions.damaged").read_bytes() == b"what is this?"


def test_second_manager_on_one_directory_is_refused(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client():
        second = Manager(tmp_path / "other", "")
        second.state = manager.state
        second.configure("")
        second.start()
        try:
            assert second.process.wait(20) == 78
            second.until_logged("another pool uses")
        finally:
            second.socket.close()


def test_file_is_rewritten_when_mostly_old(tmp_path: Path) -> None:
    big = raw("x" * 500_000)
    with managed(tmp_path) as manager, manager.client() as client:
        fill(client, 5)
        reply(client, SessionOp(1, "create", "big"))
        for _ in range(12):
            reply(client, SessionOp(2, "update", "big", set={"x": big}))
        manager.until(lambda found: found["journal"]["rewrites"], "it is rewritten")
        assert manager.status()["journal"]["bytes"] < 1_000_000
        reply(client, SessionOp(3, "update", "big", set={"y": raw(1)}))
        manager.end(signal.SIGKILL)
        manager.start()
        with manager.client() as again:
            check(again, range(5))
            found = reply(again, SessionOp(4, "get", "big"))
            assert (found.set["x"], found.set["y"]) == (big, raw(1))


def test_reload_takes_other_limits(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        reply(client, SessionOp(1, "create", "s"))
        manager.configure("[pool]\nmax_sessions = 1\nmax_waiting = 1\n")
        manager.process.send_signal(signal.SIGHUP)
        manager.until_logged("reloaded")
        assert refused(client, SessionOp(2, "create")) == "quota"
        client.send(CallFrame(3, "echo"))
        client.send(CallFrame(4, "echo"))
        assert client.expect(ErrorFrame).code == "saturated"
        manager.configure("[pool]\nmax_sessions = -1\n")
        manager.process.send_signal(signal.SIGHUP)
        manager.until_logged("not reloaded")
        assert refused(client, SessionOp(5, "create")) == "quota"


def test_operator_pages_through_sessions_without_their_data(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        fill(client, 5)
        with manager.dial() as operator:
            operator.hello("operator")
            page = reply(operator, Ask(1, "sessions", limit=3)).payload
            found = msgspec.msgpack.decode(page)
            assert [item["id"] for item in found["items"]] == ["s0", "s1", "s2"]
            rest = msgspec.msgpack.decode(
                reply(operator, Ask(2, "sessions", limit=3, after=found["next"])).payload
            )
            assert [item["id"] for item in rest["items"]] == ["s3", "s4"]
            assert rest["next"] is None
            assert set(found["items"][0]) == {
                "id",
                "bytes",
                "version",
                "idle_s",
                "expires_in_s",
                "ttl_s",
                "affinity",
                "worker",
            }
