"""The sync client against a manager by script, which runs in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.pool.peer import Listening, Peer

from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Chunk,
    Credit,
    End,
    ErrorFrame,
    Goaway,
    Hello,
    Reply,
    Result,
    SessionOp,
)
from cordata.errors import (
    CommandFailed,
    DeadlineExceeded,
    PoolClosed,
    PoolRestarted,
    PoolUnavailable,
    ProtocolError,
)
from cordata.pool import SyncClient


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


@contextmanager
def scripted(
    tmp_path: Path, script: Callable[[Listening], None], **options: Any
) -> Iterator[SyncClient]:
    """A client whose manager does what `script` says; both must come to their end."""
    with (
        Listening(tmp_path / "pool.sock") as manager,
        ThreadPoolExecutor(1) as threads,
        SyncClient(manager.path, timeout=5.0, **options) as client,
    ):
        scripting = threads.submit(script, manager)
        yield client
        scripting.result(timeout=5.0)


def answer(peer: Peer, value: object) -> CallFrame:
    frame = peer.expect(CallFrame)
    peer.send(Result(id=frame.id, payload=raw(value)))
    return frame


def test_calls_share_a_connection_one_after_the_other(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, hello = manager.welcome()
        assert hello.role == "client"
        with peer:
            frame = answer(peer, [1])
            assert (frame.command, frame.session, frame.priority) == ("render", "s", 2)
            peer.send(
                ErrorFrame(id=peer.expect(CallFrame).id, code="failed", data={"type": "NoRoom"})
            )
            answer(peer, 3)

    with scripted(tmp_path, script) as client:
        assert client.execute("render", {"a": 1}, session="s", priority=2) == [1]
        with pytest.raises(CommandFailed):
            client.execute("render")
        assert client.execute("render", type=int) == 3


def test_threads_take_turns(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            for _ in range(20):
                frame = peer.expect(CallFrame)
                peer.send(Result(id=frame.id, payload=frame.payload))

    with scripted(tmp_path, script) as client, ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda number: client.execute("echo", number), range(20))
        assert [*found] == [*range(20)]


def test_lost_connection_repeats_only_what_may_run_twice(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        for expected in (0, 1):
            peer, _ = manager.welcome()
            with peer:
                if not expected:
                    peer.expect(CallFrame)
                    continue
                assert answer(peer, "page").attempts == expected
                peer.expect(CallFrame)

    with scripted(tmp_path, script) as client:
        assert client.execute("render", idempotent=True) == "page"
        with pytest.raises(PoolRestarted):
            client.execute("book")


def test_late_call_says_that_it_may_have_run_under_a_manager_that_is_gone(tmp_path: Path) -> None:
    failed = threading.Event()

    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            peer.expect(CallFrame)
        peer, _ = manager.welcome()
        with peer:
            assert failed.wait(5.0)

    with scripted(tmp_path, script) as client:
        with pytest.raises(DeadlineExceeded, match="did not take it") as caught:
            client.execute("render", bytes(3_000_000), idempotent=True, timeout=0.5)
        failed.set()
        assert caught.value.ran


def test_call_that_did_not_run_goes_to_the_next_manager(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            frame = peer.expect(CallFrame)
            peer.send(Goaway(why="stop"))
            peer.send(ErrorFrame(id=frame.id, code="not_run"))
            second, _ = manager.welcome()
            with second:
                assert answer(second, 1).attempts == 0

    with scripted(tmp_path, script) as client:
        assert client.execute("book") == 1


def test_goaway_between_calls_moves_to_another_connection(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        first, _ = manager.welcome()
        with first:
            frame = first.expect(CallFrame)
            first.send(Goaway(why="stop"))
            first.send(Result(id=frame.id, payload=raw(1)))
            second, _ = manager.welcome()
            with second:
                answer(second, 2)

    with scripted(tmp_path, script) as client:
        assert client.execute("book") == 1
        assert client.execute("book") == 2


def test_late_answer_is_nobodys_when_the_manager_hangs(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            frame = peer.expect(CallFrame)
            assert peer.closed()
            assert frame.timeout_s is not None
            assert frame.timeout_s <= 0.1
            second, _ = manager.welcome()
            with second:
                answer(second, 2)

    with scripted(tmp_path, script) as client:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            client.execute("slow", timeout=0.1)
        assert time.monotonic() - began < 2.0
        assert client.execute("echo") == 2


def test_answer_to_another_question_is_not_taken_for_its_own(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            asked = peer.expect(CallFrame)
            peer.send(Result(id=asked.id + 1, payload=raw("of somebody else")))
            assert peer.closed()
        second, _ = manager.welcome()
        with second:
            answer(second, "mine")

    with scripted(tmp_path, script) as client:
        with pytest.raises(ProtocolError, match="question 2"):
            client.execute("echo")
        assert client.execute("echo") == "mine"


def test_call_is_unavailable_at_its_deadline_when_there_is_no_manager(tmp_path: Path) -> None:
    with SyncClient(tmp_path / "nobody") as client:
        with pytest.raises(PoolUnavailable, match="No such file"):
            client.execute("echo", timeout=0.1)
    with pytest.raises(PoolClosed):
        client.execute("echo")


def test_refused_connection_is_said_at_once(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        with manager.accept() as peer:
            peer.expect(Hello)
            peer.send(ErrorFrame(code="forbidden", m="operators have the manager's uid"))

    with scripted(tmp_path, script, operator=True) as client, pytest.raises(ProtocolError):
        client.status()


def test_stream_gives_credits_and_is_cancelled_when_it_is_left(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            frame = peer.expect(CallFrame)
            assert frame.credits == 4
            for number in range(4):
                peer.send(Chunk(id=frame.id, payload=raw(number)))
            assert peer.expect(Credit).n == 2
            assert peer.expect(Credit).n == 2
            peer.send(End(id=frame.id))
            assert peer.closed()
        peer, _ = manager.welcome()
        with peer:
            frame = peer.expect(CallFrame)
            peer.send(Chunk(id=frame.id, payload=raw(0)))
            assert peer.closed()

    with scripted(tmp_path, script) as client:
        assert [*client.stream("pages", credit=4)] == [0, 1, 2, 3]
        parts = client.stream("pages", credit=4)
        assert next(parts) == 0
        parts.close()


def test_stream_fails_with_its_error_after_what_came_before(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, _ = manager.welcome()
        with peer:
            frame = peer.expect(CallFrame)
            peer.send(Chunk(id=frame.id, payload=raw(0)))

    with scripted(tmp_path, script) as client:
        parts = client.stream("pages", idempotent=True)
        assert next(parts) == 0
        with pytest.raises(PoolRestarted):
            next(parts)


def test_sessions_and_status_are_asked_for(tmp_path: Path) -> None:
    def script(manager: Listening) -> None:
        peer, hello = manager.welcome()
        assert hello.role == "operator"
        with peer:
            asked = peer.expect(SessionOp)
            peer.send(Reply(id=asked.id, s=asked.s, v=1, ttl=2.0, set=asked.set))
            peer.send(Reply(id=peer.expect(Ask).id, payload=raw({"waiting": 0})))

    with scripted(tmp_path, script, operator=True) as client:
        info = client.sessions.create("s", data={"n": 1})
        assert (info.id, info.data, info.ttl_s) == ("s", {"n": 1}, 2.0)
        assert client.status() == {"waiting": 0}
