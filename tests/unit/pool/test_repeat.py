"""Requests that a client sends again when a worker went away before it answered."""

from __future__ import annotations

import pytest
from msgspec import Raw

from cordata.pool.client.session_api import may_repeat
from cordata.pool.shared.protocol import GlobalRequest, SessionRequest


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (SessionRequest(number=1, operation="get", session="a"), True),
        (SessionRequest(number=1, operation="update", session="a", ttl_s=60.0), True),
        (SessionRequest(number=1, operation="update", session="a", set={"n": Raw(b"1")}), False),
        (SessionRequest(number=1, operation="update", session="a", delete=["n"]), False),
        (SessionRequest(number=1, operation="count", session="a", count={"n": 1}), False),
        (GlobalRequest(number=1, operation="change", set={"n": Raw(b"1")}), False),
    ],
)
def test_request_is_repeated_when_a_second_run_changes_nothing(
    request_: SessionRequest | GlobalRequest, expected: bool
) -> None:
    assert may_repeat(request_) is expected
