"""The one commit of an attempt, and its end."""

from __future__ import annotations

import pytest

from cordata.core.once import CommittedTwice, HandlerEnded, Once
from cordata.services.ending import end


def test_commit_is_refused_when_the_attempt_has_ended() -> None:
    once = Once()
    assert once.end(lambda: None)
    with (
        pytest.raises(HandlerEnded, match="its handler has ended"),
        once.commit("t.group", "message"),
    ):
        raise AssertionError
    assert not once.committed


def test_body_is_not_committed_when_the_attempt_ended_meanwhile() -> None:
    once = Once()
    with pytest.raises(HandlerEnded), once.commit("t.group", "message"):
        assert once.end(lambda: None)
        once.seal("t.group")
    assert not once.committed


def test_end_waits_for_the_outcome_when_a_commit_is_under_way() -> None:
    once, told = Once(), list[bool]()
    with once.commit("t.group", "message"):
        once.seal("t.group")
        assert not once.end(lambda: told.append(once.committed))
        assert told == []
    assert told == [True]


def test_end_is_told_when_the_commit_under_way_fails() -> None:
    once, told = Once(), list[bool]()
    with pytest.raises(KeyError), once.commit("t.group", "message"):
        once.seal("t.group")
        once.end(lambda: told.append(once.committed))
        raise KeyError
    assert told == [False]


def test_second_commit_is_refused_and_a_failed_one_may_be_tried_again() -> None:
    once = Once()
    with pytest.raises(KeyError), once.commit("t.group", "message"):
        raise KeyError
    with once.commit("t.group", "message"):
        once.seal("t.group")
        with pytest.raises(CommittedTwice), once.commit("t.group", "message"):
            raise AssertionError
    assert once.committed


async def test_end_returns_at_once_when_nothing_is_under_way() -> None:
    once = Once()
    await end(once)
    await end(once)
