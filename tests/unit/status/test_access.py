"""Sessions and attempts of the status page; time is what the clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cordata import clock
from cordata.status.page.access import SESSION_S, Access, TooManyAttempts

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


def test_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access("a" * 20)
    monkeypatch.setattr(clock, "now", lambda: NOW)
    cookie = access.new_session()
    assert access.is_session(cookie)
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(seconds=SESSION_S))
    assert not access.is_session(cookie)


@pytest.mark.parametrize("wrong", ["", ".", "a.b.c", "9999999999.a.\ud800", "\0"])
def test_what_is_no_session_is_refused(wrong: str) -> None:
    assert not Access("a" * 20).is_session(wrong)


def test_session_of_another_token_or_with_another_end_is_refused() -> None:
    cookie = Access("a" * 20).new_session()
    assert not Access("b" * 20).is_session(cookie)
    assert not Access("a" * 20).is_session("9" + cookie)


def test_wrong_tokens_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    access, now = Access("a" * 20), [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    assert [access.is_token("b") for _ in range(10)] == [False] * 10
    with pytest.raises(TooManyAttempts) as refused:
        access.is_token("a" * 20)
    now[0] += refused.value.retry_after_s
    assert access.is_token("a" * 20) and access.is_token("a" * 20)
