"""Trace context: which headers are valid, and what is carried on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cordata import trace
from cordata.log import in_request, request_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"
REQUEST = "0af7651916cd43dd8448eb211c80319c"


@contextmanager
def message(headers: dict[str, str], event_id: str = "e" * 32) -> Iterator[trace.Trace]:
    try:
        with in_request(headers.get("request_id", "")):
            trace.begin_message(headers, event_id, "shop.pack", 1)
            found = trace.current_trace()
            assert found is not None
            yield found
    finally:
        trace.end()


def given_request(traceparent: str, id_: str = REQUEST) -> tuple[trace.Trace, str]:
    try:
        with in_request(id_):
            trace.begin_request(id_, traceparent)
            found = trace.current_trace()
            assert found is not None
            return found, trace.carried(request_id.get())
    finally:
        trace.end()


def test_header_of_another_type_is_taken_as_its_text() -> None:
    headers: dict[str, Any] = {"request_id": 5, "traceparent": {}}
    trace.begin_message(headers, "e" * 32, "shop.pack", 1)
    assert trace.current_trace() is not None
    trace.end()


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (GIVEN, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_valid_traceparent_is_understood(text: str, sampled: bool) -> None:
    assert trace.parse(text) == (TRACE, SPAN, sampled)
    assert trace.trace_id_in(text) == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        7,
        "x",
        TRACE,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01.",
        f"cc-{TRACE}-{SPAN}-01.what",
        f"{GIVEN}, {GIVEN}",
        f"{GIVEN}\n",
        f" {GIVEN}",
    ],
)
def test_invalid_traceparent_is_none(text: object) -> None:
    assert trace.parse(text) is None


def test_request_continues_the_trace_that_it_came_with() -> None:
    found, carried = given_request(GIVEN)
    assert (found.trace_id, found.parent_id, found.sampled) == (TRACE, SPAN, True)
    assert re.fullmatch("[0-9a-f]{16}", found.span_id) and found.span_id != SPAN
    assert carried == found.traceparent == f"00-{TRACE}-{found.span_id}-01"
    assert given_request(GIVEN, "another")[0].span_id != found.span_id


def test_request_without_one_begins_a_trace_that_follows_from_its_id() -> None:
    with in_request(REQUEST):
        found = trace.current_trace()
        assert found is not None
        assert (found.trace_id, found.parent_id, found.sampled) == (REQUEST, "", False)
        assert trace.carried(request_id.get()) == "", "it follows from the request id"
    with in_request("order-4711"):
        named = trace.current_trace()
        assert named is not None and trace.parse(named.traceparent) is not None
        assert trace.carried(request_id.get()) == named.traceparent, (
            "nothing can be searched for by a hash"
        )
    with in_request("0" * 32):
        zero = trace.current_trace()
        assert zero is not None and trace.parse(zero.traceparent) is not None
    assert trace.current_trace() is None and trace.carried(request_id.get()) == ""


def test_handler_belongs_to_the_trace_of_the_publisher() -> None:
    _, carried = given_request(GIVEN)
    parent = trace.parse(carried)
    assert parent is not None
    with message({"request_id": REQUEST, "traceparent": carried}) as found:
        assert (found.trace_id, found.parent_id, found.sampled) == (TRACE, parent[1], True)
        assert trace.carried(request_id.get()) == found.traceparent
    with in_request(REQUEST):
        of_request = trace.current_trace()
    assert of_request is not None
    with message({"request_id": REQUEST}) as found:
        assert (found.trace_id, found.parent_id) == (REQUEST, of_request.span_id)
        assert trace.carried(request_id.get()) == ""


def test_event_without_a_request_begins_a_trace() -> None:
    with message({}) as found:
        assert (found.trace_id, found.parent_id, found.sampled) == ("e" * 32, "", False)
        assert trace.carried(request_id.get()) == found.traceparent, (
            "further events have another id"
        )
    with message({"traceparent": "of the application"}) as found:
        assert found.trace_id == "e" * 32


def test_call_of_the_pool_is_a_span_of_its_own() -> None:
    try:
        with in_request(REQUEST):
            trace.begin_call(REQUEST, GIVEN, "4d-7")
            found = trace.current_trace()
            assert found is not None
            assert (found.trace_id, found.parent_id) == (TRACE, SPAN)
            trace.begin_call(REQUEST, "", "4d-7")
            assert trace.current_trace() == trace.trace_of(REQUEST, operation=["4d-7"])
            with trace.untraced():
                assert trace.current_trace() is None
                assert trace.carried(request_id.get()) == ""
    finally:
        trace.end()
