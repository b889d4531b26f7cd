"""The one commit of an attempt, and its end."""

from __future__ import annotations

import pytest

from cordata.core.commit_guard import CommitGuard, CommittedTwice, HandlerEnded


def test_commit_is_refused_when_the_attempt_has_ended() -> None:
    guard = CommitGuard()
    assert guard.end(lambda: None)
    with (
        pytest.raises(HandlerEnded, match="its handler has ended"),
        guard.commit("t.group", "message"),
    ):
        raise AssertionError
    assert not guard.committed


def test_body_is_not_committed_when_the_attempt_ended_meanwhile() -> None:
    guard = CommitGuard()
    with pytest.raises(HandlerEnded), guard.commit("t.group", "message"):
        assert guard.end(lambda: None)
        guard.seal("t.group")
    assert not guard.committed


def test_end_waits_for_the_outcome_when_a_commit_is_under_way() -> None:
    guard, told = CommitGuard(), list[bool]()
    with guard.commit("t.group", "message"):
        guard.seal("t.group")
        assert not guard.end(lambda: told.append(guard.committed))
        assert told == []
    assert told == [True]


def test_end_is_told_when_the_commit_under_way_fails() -> None:
    guard, told = CommitGuard(), list[bool]()
    with pytest.raises(KeyError), guard.commit("t.group", "message"):
        guard.seal("t.group")
        guard.end(lambda: told.append(guard.committed))
        raise KeyError
    assert told == [False]


def test_second_commit_is_refused_and_a_failed_one_may_be_tried_again() -> None:
    guard = CommitGuard()
    with pytest.raises(KeyError), guard.commit("t.group", "message"):
        raise KeyError
    with guard.commit("t.group", "message"):
        guard.seal("t.group")
        with pytest.raises(CommittedTwice), guard.commit("t.group", "message"):
            raise AssertionError
    assert guard.committed


def test_end_waits_for_nothing_when_no_commit_is_under_way() -> None:
    guard = CommitGuard()
    assert guard.end(lambda: None)
    assert guard.end(lambda: None)
