"""At most one mail per cause and cool-down, whichever process asks."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from cordata.alert import Cooldown
from cordata.alert.cooldown import TooMany


def test_claim_counts_within_the_cooldown_and_tells_afterwards(tmp_path: Path) -> None:
    assert Cooldown([tmp_path], cooldown_s=900).claim("worker@0", now=1000.0) == 0
    again = Cooldown([tmp_path], cooldown_s=900)
    assert again.claim("worker@0", now=1001.0) is None
    assert again.claim("worker@0", now=1899.9) is None
    assert again.claim("worker@0", now=1900.0) == 2
    assert again.claim("worker@0", now=1901.0) is None


def test_claim_keeps_causes_apart(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900)
    assert cooldown.claim("worker@0", now=1000.0) == 0
    assert cooldown.claim("worker@1", now=1000.0) == 0


def test_claim_is_granted_when_the_clock_stepped_back(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900)
    assert cooldown.claim("worker@0", now=5000.0) == 0
    assert cooldown.claim("worker@0", now=1000.0) == 0


def test_give_back_allows_the_next_mail_soon_and_counts_the_lost_one(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900)
    assert cooldown.claim("worker@0", now=1000.0) == 0
    cooldown.give_back("worker@0", counted=0, now=1000.0)
    assert cooldown.claim("worker@0", now=1059.0) is None
    assert cooldown.claim("worker@0", now=1060.0) == 2


@pytest.mark.parametrize("text", ['{"worker@0": {"mailed', "[]", '{"worker@0": {"before": [""]}}'])
def test_claim_starts_anew_when_the_state_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "alerts.json").write_text(text)
    assert Cooldown([tmp_path], cooldown_s=900).claim("worker@0", now=1000.0) == 0
    assert json.loads((tmp_path / "alerts.json").read_text())["worker@0"]["counted"] == 0


def test_claim_uses_the_second_directory_when_the_first_cannot_be_written(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path / "none", tmp_path], cooldown_s=900)
    assert cooldown.claim("store-full", now=1000.0) == 0
    assert cooldown.claim("store-full", now=1001.0) is None


def test_claim_counts_on_when_the_first_directory_is_full_meanwhile(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    cooldown = Cooldown([first, second], cooldown_s=900)
    assert cooldown.claim("store-full", now=1000.0) == 0
    (blocked := first / f".alerts.json.{os.getpid()}").mkdir()  # nothing can be written there
    assert [cooldown.claim("store-full", now=1001.0 + n) for n in range(3)] == [None] * 3
    blocked.rmdir()
    assert cooldown.claim("store-full", now=1900.0) == 3


def test_claim_fails_when_no_directory_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Cooldown([tmp_path / "none"], cooldown_s=900).claim("store-full", now=1000.0)


def test_claim_forgets_causes_when_they_are_old(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900)
    cooldown.claim("old", now=1000.0)
    cooldown.claim("new", now=1000.0 + 31 * 86_400)
    assert list(json.loads((tmp_path / "alerts.json").read_text())) == ["new"]


def test_claim_is_refused_when_there_were_many_mails_of_whatever_cause(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900, max_per_hour=3)
    for at, kind in enumerate("abc"):
        assert cooldown.claim(kind, now=10_000.0 + at) == 0
    with pytest.raises(TooMany):
        cooldown.claim("d", now=11_900.0)
    assert cooldown.claim("d", now=13_601.0) == 0


def test_known_kinds_leave_half_of_the_mails_to_new_ones(tmp_path: Path) -> None:
    """Four workers that crash again and again do not delay the mail about the primary."""
    cooldown = Cooldown([tmp_path], cooldown_s=900, max_per_hour=12)
    mailed = 0
    for at in range(10_000, 13_600, 900):
        for number in range(4):
            with suppress(TooMany):
                mailed += cooldown.claim(f"worker@{number}", now=at + number) == 0
    assert mailed == 6
    assert cooldown.claim("primary", now=13_500.0) == 0
    with pytest.raises(TooMany):
        cooldown.claim("worker@0", now=13_550.0)


def test_mails_that_were_not_sent_use_up_no_limit(tmp_path: Path) -> None:
    """The mail server is away for a moment: the kind is as new, and the mails are as many."""
    cooldown = Cooldown([tmp_path], cooldown_s=900, max_per_hour=2)
    assert cooldown.claim("worker@0", now=10_000.0) == 0
    for at in (10_001.0, 10_061.0):
        assert cooldown.claim("primary", now=at) is not None
        cooldown.give_back("primary", counted=0, now=at)
    assert cooldown.claim("primary", now=10_121.0) == 1
    with pytest.raises(TooMany):
        cooldown.claim("worker@1", now=10_122.0)


def test_mails_before_one_that_was_not_sent_still_count(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900, max_per_hour=4)
    for at in (10_000.0, 10_900.0):
        assert cooldown.claim("worker@0", now=at) == 0
    cooldown.give_back("worker@0", counted=0, now=10_900.0)
    assert cooldown.claim("worker@0", now=10_960.0) == 1
    with pytest.raises(TooMany):
        cooldown.claim("worker@0", now=11_860.0)


def test_kinds_that_are_claimed_at_the_same_time_are_one_mail_of_the_limit(tmp_path: Path) -> None:
    cooldown = Cooldown([tmp_path], cooldown_s=900, max_per_hour=2)
    assert [cooldown.claim(kind, now=10_000.0) for kind in "abc"] == [0, 0, 0]
    assert [cooldown.claim(kind, now=10_001.0) for kind in "de"] == [0, 0]
    with pytest.raises(TooMany):
        cooldown.claim("f", now=10_002.0)
