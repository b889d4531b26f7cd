"""How fast long work goes, and when it will be over."""

from __future__ import annotations

import pytest

from cordata.cli.subscriptions import Progress
from cordata.terminal import span


def test_rate_and_end_follow_from_what_was_told() -> None:
    progress = Progress()
    assert (progress.rate, progress.share, progress.eta_s) == (0.0, 1.0, 0.0)
    progress.update(0.0, 1000)
    assert (progress.rate, progress.share, progress.eta_s) == (0.0, 0.0, None)
    progress.update(2.0, 600)
    assert (progress.rate, progress.share, progress.eta_s) == (200.0, 0.4, 3.0)


def test_rate_is_that_of_the_last_seconds() -> None:
    progress = Progress()
    for second in range(60):
        progress.update(float(second), 100_000 - 10 * second)
    for second in range(60, 80):
        progress.update(float(second), 99_400 - 100 * (second - 60))
    assert progress.rate == pytest.approx(100.0, rel=0.05)


def test_nobody_can_say_when_it_ends_while_more_comes_than_goes() -> None:
    progress = Progress()
    progress.update(0.0, 100)
    progress.update(1.0, 150)
    assert (progress.rate, progress.eta_s, progress.share) == (0.0, None, 0.0)
    progress.update(2.0, 0)
    assert (progress.eta_s, progress.share) == (0.0, 1.0)


def test_times_are_written_for_people() -> None:
    assert [span(s) for s in (0.4, 61, 200, 7500)] == ["0 s", "61 s", "3 min", "2 h"]
