"""When hotel software has fallen silent."""

from __future__ import annotations

import pytest

from alpinehub.monitoring import Contact, Staleness, mail_of, staleness_of

HOUR = 3_600_000_000
NOW = 1000 * HOUR


def staleness(
    *,
    came_h: int | None = None,
    oldest_h: int | None = None,
    sent_h: int | None = None,
    pushed: bool = False,
    after: int,
) -> tuple[str, int] | None:
    """What is missed, and for how many hours; moments are given as hours before now."""

    def at(hours: int | None) -> int | None:
        return None if hours is None else NOW - hours * HOUR

    contact = Contact(
        came_at=at(came_h),
        is_pushed=pushed,
        waiting=0 if oldest_h is None else 1,
        oldest_at=at(oldest_h),
        sent_at=at(sent_h),
    )
    found = staleness_of(contact, now_us=NOW, after_h=after)
    return None if found is None else (found.what, found.hours(NOW))


def test_software_is_stale_when_it_came_before_and_no_longer_does() -> None:
    assert staleness(came_h=23, after=24) is None
    assert staleness(came_h=24, after=24) == ("poll", 24)
    assert staleness(came_h=99, oldest_h=1, after=24) == ("poll", 99)


def test_software_that_never_came_is_stale_only_when_something_waits() -> None:
    assert staleness(after=24) is None
    assert staleness(oldest_h=23, after=24) is None
    assert staleness(oldest_h=25, after=24) == ("poll", 25)


def test_software_is_stale_by_what_it_does_not_acknowledge_though_it_comes() -> None:
    assert staleness(came_h=0, oldest_h=90, sent_h=23, after=24) is None
    assert staleness(came_h=0, oldest_h=90, sent_h=24, after=24) == ("acknowledge", 24)
    assert staleness(came_h=0, oldest_h=90, after=24) is None  # held: it got nothing


def test_software_that_is_pushed_everything_need_not_come() -> None:
    assert staleness(pushed=True, came_h=99, after=24) is None
    assert staleness(pushed=True, oldest_h=23, after=24) is None
    assert staleness(pushed=True, oldest_h=25, after=24) == ("acknowledge", 25)


def test_nobody_is_stale_when_nobody_asked() -> None:
    assert staleness(came_h=999, oldest_h=999, sent_h=999, after=0) is None


@pytest.mark.parametrize(
    ("language", "subject", "says"),
    [
        ("de", "Edelweiss: Die Hotelsoftware nimmt", "(pms) hat sich seit 25 Stunden nicht"),
        ("it", "Edelweiss: Il software dell'hotel non", "(pms) non si collega da 25 ore."),
        ("en", "Edelweiss: The hotel software does", "(pms) has not polled for 25 hours."),
        ("fr", "Edelweiss: The hotel software does", "(pms) has not polled for 25 hours."),
    ],
)
def test_tell_speaks_the_hotels_language(language: str, subject: str, says: str) -> None:
    silent = Staleness(what="poll", since_at=0, waiting=3)
    told = mail_of(silent, language=language, hotel="Edelweiss", account="pms", hours=25)
    assert told[0].startswith(subject)
    assert says in told[1]
    assert told[1].endswith("3.\n")
