"""What clients say and understand: options to frames, errors to exceptions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cordata.core.pool.codec import POOL_ERRORS
from cordata.core.pool.message import Ask, CallFrame, ErrorFrame, GlobalOp, SessionOp
from cordata.errors import (
    CommandFailed,
    CommandPoisoned,
    CommandRefused,
    DeadlineExceeded,
    FrameTooLarge,
    PermanentError,
    PoolError,
    ProtocolError,
    WorkerCrashed,
)
from cordata.log import request_id
from cordata.pool.client.sessions import Globals, SessionInfo, creating, updating
from cordata.pool.client.syncsessions import SyncGlobals
from cordata.pool.client.wire import (
    call_of,
    decoder_of,
    error_of,
    may_repeat,
    plain,
    values_of,
    window_of,
)


def test_call_keeps_the_payload_as_it_was_when_the_caller_changes_it_later() -> None:
    payload = {"rooms": [1, 2]}
    frame = call_of("count", payload, timeout_s=1.0)
    payload["rooms"].append(3)
    assert msgspec.msgpack.decode(frame.payload) == {"rooms": [1, 2]}


def test_call_carries_the_request_id_in_hand() -> None:
    token = request_id.set("r" * 300)
    try:
        assert call_of("count", None, timeout_s=1.0).request_id == "r" * 200
        request_id.set("\ud800r")  # what UTF-8 cannot say would be found when it is sent
        assert call_of("count", None, timeout_s=1.0).request_id == "?r"
    finally:
        request_id.reset(token)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0.0},
        {"timeout_s": -1.0},
        {"timeout_s": float("nan")},
        {"timeout_s": 1.0, "queue_timeout_s": -1.0},
        {"timeout_s": 1.0, "priority": 10},
        {"timeout_s": 1.0, "priority": -1},
    ],
)
def test_call_refuses_an_option_that_the_manager_would_not_take(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        call_of("count", None, **options)


def test_call_without_an_end_gets_the_longest_that_the_wire_has() -> None:
    assert call_of("count", None, timeout_s=float("inf")).timeout_s == 2e6


def test_call_says_that_a_session_is_named_by_its_id() -> None:
    info = SessionInfo(
        id="s", version=1, ttl_s=1.0, data={}, counters={}, affinity="hint", worker=""
    )
    with pytest.raises(TypeError, match=r"its \.id\), not SessionInfo"):
        call_of("count", None, timeout_s=1.0, session=info)  # type: ignore[arg-type]


@pytest.mark.parametrize("credit", [0, 1025, -1])
def test_window_refuses_what_would_mean_something_else(credit: int) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        window_of(credit)


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize("payload", [object(), 2**64, -(2**63) - 1, NESTED, "\udcff"])
def test_call_refuses_a_payload_that_messagepack_does_not_know(payload: Any) -> None:
    with pytest.raises(TypeError):
        call_of("count", payload, timeout_s=1.0)
    with pytest.raises(TypeError):
        values_of({"k": payload})


@pytest.mark.parametrize("names", [("\udcff", ""), ("count", "\udcff")])
def test_call_refuses_names_that_utf8_cannot_say_before_it_is_sent(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        call_of(names[0], None, timeout_s=1.0, session=names[1])


@pytest.mark.parametrize("code", sorted(POOL_ERRORS))
def test_each_code_becomes_its_error_with_its_text(code: str) -> None:
    error = error_of(ErrorFrame(id=1, code=code, m="what happened"))
    assert (type(error).code, str(error)) == (code, "what happened")


@pytest.mark.parametrize("code", ["protocol", "version", "forbidden"])
def test_what_the_connection_is_refused_for_is_a_protocol_error(code: str) -> None:
    assert isinstance(error_of(ErrorFrame(code=code)), ProtocolError)


def test_code_of_a_later_version_is_an_error_of_the_pool_that_names_it() -> None:
    error = error_of(ErrorFrame(id=1, code="brand_new"))
    assert type(error) is PoolError
    assert str(error) == "brand_new"


def test_answer_that_was_too_large_tells_how_large_and_what_is_taken() -> None:
    data = {"length_bytes": 2000, "limit_bytes": 1000}
    error = error_of(ErrorFrame(id=1, code="frame_too_large", m="no", data=data))
    assert isinstance(error, FrameTooLarge)
    assert (error.length_bytes, error.limit_bytes) == (2000, 1000)


@pytest.mark.parametrize(
    "frame_of",
    [
        lambda affinity: creating("s", None, None, affinity, ""),
        lambda affinity: updating("s", None, (), None, affinity, None),
    ],
    ids=["create", "update"],
)
def test_affinity_that_there_is_not_is_refused_before_it_is_sent(
    frame_of: Callable[[Any], SessionOp],
) -> None:
    with pytest.raises(ValueError, match=r"'nope', .* hint, strict_queue, strict_fail"):
        frame_of("nope")
    assert [frame_of(one).aff for one in (None, "strict_fail")] == ["", "strict_fail"]


def test_unknown_command_hints_at_the_one_that_was_meant() -> None:
    told = [ErrorFrame(code="unknown_command", m="no", data={"near": near}) for near in ("a", "")]
    assert [error_of(frame).hint for frame in told] == ["did you mean 'a'?", None]


def test_failed_command_tells_type_and_traceback() -> None:
    data = {"type": "shop.NoRoom", "traceback": "Traceback ...", "permanent": False}
    error = error_of(ErrorFrame(id=1, code="failed", m="full", data=data))
    assert type(error) is CommandFailed
    assert (error.type, error.traceback, str(error)) == ("shop.NoRoom", "Traceback ...", "full")
    assert not isinstance(error, PermanentError)


def test_failed_command_that_said_nothing_is_told_by_its_type() -> None:
    error = error_of(ErrorFrame(id=1, code="failed", data={"type": "MemoryError"}))
    assert str(error) == "MemoryError"


def test_command_that_raised_permanently_is_refused_for_good() -> None:
    error = error_of(ErrorFrame(id=1, code="failed", m="no", data={"permanent": True}))
    assert isinstance(error, CommandRefused)
    assert isinstance(error, PermanentError)


def test_crash_tells_signal_lines_and_worker() -> None:
    data = {"exit_code": None, "signal": 9, "lines": ["bye"], "worker": "1", "pid": 77}
    error = error_of(ErrorFrame(id=1, code="crashed", data=data))
    assert isinstance(error, WorkerCrashed)
    assert (error.exit_code, error.signal, error.lines) == (None, 9, ("bye",))
    assert (error.worker, error.pid) == ("1", 77)


def test_data_of_another_shape_is_not_an_error_of_its_own() -> None:
    data = {"exit_code": "x", "signal": [], "lines": 3, "worker": 1, "pid": None}
    error = error_of(ErrorFrame(id=1, code="crashed", data=data))
    assert isinstance(error, WorkerCrashed)
    assert (error.exit_code, error.signal, error.lines, error.pid) == (None, None, (), 0)


def test_retry_after_and_ran_come_through() -> None:
    poisoned = error_of(ErrorFrame(id=1, code="poisoned", data={"retry_after_s": 60}))
    assert isinstance(poisoned, CommandPoisoned)
    assert poisoned.retry_after_s == 60.0
    late = error_of(ErrorFrame(id=1, code="deadline", data={"ran": False}))
    assert isinstance(late, DeadlineExceeded)
    assert not late.ran


@pytest.mark.parametrize(
    ("message", "harmless"),
    [
        (CallFrame(id=1, command="c"), False),
        (CallFrame(id=1, command="c", idempotent=True), True),
        (SessionOp(id=1, op="get"), True),
        (SessionOp(id=1, op="touch"), True),
        (SessionOp(id=1, op="count"), False),
        (SessionOp(id=1, op="create"), False),
        (SessionOp(id=1, op="update"), False),
        (GlobalOp(id=1, op="get"), True),
        (GlobalOp(id=1, op="set"), False),
        (Ask(id=1, op="status"), True),
        (Ask(id=1, op="recycle"), False),
    ],
)
def test_only_what_changes_nothing_may_be_sent_twice(message: Any, harmless: bool) -> None:
    assert may_repeat(message) is harmless


def test_result_is_converted_when_a_type_is_named() -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode([1, 2]))
    assert decoder_of(tuple[int, int])(raw) == (1, 2)
    assert decoder_of(None)(raw) == [1, 2]
    with pytest.raises(msgspec.ValidationError):
        decoder_of(str)(raw)


@pytest.mark.parametrize("kind", [Globals, SyncGlobals])
def test_examples_of_how_globals_are_set_do_so(kind: type[Globals | SyncGlobals]) -> None:
    asked: list[GlobalOp] = []

    def ask(op: Any) -> Any:
        asked.append(op)
        return asyncio.sleep(0) if kind is Globals else None

    for example in re.findall(r"`(set\(.*?\))`", kind.set.__doc__ or ""):
        done = eval(example, {"set": kind(ask).set})
        if kind is Globals:
            asyncio.run(done)
    assert [plain(op.set) for op in asked] == [{"season": "winter"}, {"tax.it": 0.22}]
