"""The wire corpus, whole and behind another request; cut into pieces in the integration tests."""

from __future__ import annotations

from tests.unit.http.corpus import Case, load, replay

BEFORE = b"GET /before HTTP/1.1\r\nHost: a\r\n\r\n"
FIRST = {"method": "GET", "target": "/before", "headers": [["host", "a"]]}


def test_corpus_is_found() -> None:
    assert len(load("valid")) > 80
    assert len(load("invalid")) > 190


async def test_valid_requests_reach_the_application_when_whole() -> None:
    await replay(load("valid"), lambda data: [[data]])


async def test_invalid_requests_are_refused_when_whole() -> None:
    await replay(load("invalid"), lambda data: [[data]])


async def test_cases_are_judged_the_same_when_pipelined() -> None:
    cases = load("valid") + load("invalid")
    behind = [
        Case(case.name, BEFORE + case.data, {**case.expected, "requests": [FIRST, *requests]})
        for case in cases
        if (requests := case.expected["requests"]) is not None
    ]
    await replay(behind, lambda data: [[data]])
