"""What belongs together, what may be told, and when."""

from __future__ import annotations

import pytest

from cordata.core.alert import (
    MAX_GROUPS,
    MAX_KINDS,
    AlertGroup,
    AlertPace,
    add_to,
    fingerprint,
    group_of,
    merge,
    scrub,
    subject_of,
    text_of,
    without_variables,
)

SECOND = 1_000_000
PACE = AlertPace(count=10, wait_us=300 * SECOND, cooldown_us=900 * SECOND, max_per_hour=12)


def group(cause: str = "x", *, at: int = 0, pending: int = 1, urgent: bool = False) -> AlertGroup:
    made = group_of(
        cause,
        f"{cause} went wrong",
        place="host worker@0",
        now_us=at * SECOND,
        urgent=urgent,
    )
    made.pending = pending
    return made


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mail to anna.huber@example.com failed", "mail to … failed"),
        ("<anna@example.com>", "<…>"),
        ("worker@0.service failed", "worker@0.service failed"),
        ("call +39 0471 12 34 56 now", "call … now"),
        ("call 0471/123456", "call …"),
        ("request 0190b2c4d5e67f8090a1b2c3d4e5f607 is dead", "request … is dead"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id …"),
        ("card 4111111111111111", "card …"),
        ("no guest 'Anna Huber' here", "no guest '…' here"),
        ('no guest "Anna" here', 'no guest "…" here'),
        ("the hotel's list isn't there", "the hotel's list isn't there"),
        (
            "POST https://u:pw@api.example.com/hook/s3cr3t?key=1 failed",
            "POST https://api.example.com/… failed",
        ),
        ("postgresql://hub:hunter2@db/hub", "postgresql://db/…"),
        ("password=hunter2 token: abc", "password=… token: …"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: …"),
        ("proxy-authorization: Basic dXNlcjpwdw==", "proxy-authorization: …"),
        ("X-Api-Key=hunter2 x-secret_y", "X-Api-Key=… x-secret_y"),
        ("anna@example.com-bert@example.com", "……"),
        ("127.0.0.1:5432: 12 of 200 on 2026-02-01 at 08:00", None),
        ("at day.py:39 < job.py:41", None),
        ("one\n  two\x00\x1b[31m", "one\n  two  [31m"),
        ("group \udc80", "group \\udc80"),
    ],
)
def test_scrub_leaves_out_what_could_be_a_persons_or_a_secret(text: str, told: str | None) -> None:
    assert scrub(text) == (text if told is None else told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hotel 20261122 (Edel): `show 20261122 form`", None),
        ("silent:20261122:demo", None),
        ("hotel 20261122: call +39 20261122", "hotel 20261122: call …"),
        ("call 0471 20261122 now", "call … now"),
        ("hotel 20261122, room 720261122, 202611223", "hotel 20261122, room …, …"),
        ("hotel AB-123456 of A-123456", "hotel AB-123456 of A-…"),
        ("hotel 0123456789", None),
        ("hotel 1234567890abcdef", None),
        ("password=20261122 '20261122'", "password=… '…'"),
        ("20261122@example.com https://a.example/20261122", "… https://a.example/…"),
    ],
)
def test_scrub_leaves_in_what_is_known_to_be_nobodys(text: str, told: str | None) -> None:
    ids = ["20261122", "AB-123456", "0123456789", "1234567890abcdef", ""]
    assert scrub(text, ids) == (text if told is None else told)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("order 7 of anna@example.com", "order 123456 of bert@example.com", True),
        ("order A7 'red'", "order B99 'blue'", True),
        ("event 0190b2c4d5e67f8090a1b2c3d4e5f607", "event 7", True),
        ("child 12 of worker 0 was killed by SIGSEGV", "child 9 of worker 1 ended with 1", False),
        ("KeyError at orders.py:7 < job.py:41", "KeyError at orders.py:17 < job.py:41", False),
        ("KeyError at orders.py:7", "ValueError at orders.py:7", False),
        ("the consumer group mails", "the consumer group orders", False),
    ],
)
def test_text_without_variables_is_that_of_the_kind(one: str, other: str, is_same: bool) -> None:
    assert (without_variables(one) == without_variables(other)) is is_same


def test_group_tells_its_ids_in_cause_and_text() -> None:
    made = group_of(
        "form:20261122",
        "hotel 20261122 has 987654321",
        place="host worker@0",
        now_us=0,
        urgent=False,
        ids=["20261122"],
    )
    assert (made.cause, made.title) == ("form:20261122", "hotel 20261122 has …")


def test_fingerprint_is_the_same_for_the_same_parts_only() -> None:
    assert fingerprint("a", "b") == fingerprint("a", "b")
    assert fingerprint("a", "b") != fingerprint("ab")
    assert fingerprint("\udc80")


def test_merge_counts_and_keeps_when_the_first_untold_one_came() -> None:
    told = group(at=1, pending=0)
    merge(told, group(at=5))
    merge(told, group(at=9))
    assert (told.count, told.pending, told.since_at) == (3, 2, 5 * SECOND)
    assert (told.first_at, told.last_at) == (1 * SECOND, 9 * SECOND)


def test_due_at_waits_for_more_of_the_kind() -> None:
    assert PACE.due_at(group(at=100)) == 400 * SECOND


@pytest.mark.parametrize("many", [group(at=100, pending=10), group(at=100, urgent=True)])
def test_due_at_is_at_once_when_it_is_urgent_or_many(many: AlertGroup) -> None:
    assert PACE.due_at(many) == 100 * SECOND


def test_due_at_is_not_before_the_cooldown_is_over() -> None:
    again = group(at=100, urgent=True)
    again.mailed_at = 50 * SECOND
    assert PACE.due_at(again) == 950 * SECOND


def test_add_to_keeps_a_bound_on_the_number_of_kinds() -> None:
    groups: dict[str, AlertGroup] = {}
    add_to(groups, (group(f"kind {number}") for number in range(MAX_GROUPS + 47)))
    assert len(groups) == MAX_GROUPS + 1
    assert groups[fingerprint("many")].count == 47
    assert groups[fingerprint("kind 0")].count == 1


def test_text_tells_counts_and_moments_of_each_kind() -> None:
    many = group("first", at=10, pending=14)
    many.last_at = 70 * SECOND
    text = text_of([many, group("second", at=20)], PACE)
    assert "14 times, 1970-01-01 00:00:10 UTC to 1970-01-01 00:01:10 UTC, last at host" in text
    assert "once, 1970-01-01 00:00:20 UTC" in text
    assert "at most 12 mails, and each host as many about urgent alerts" in text
    assert subject_of([many]) == "[host worker@0] first went wrong"
    assert subject_of([many, many]) == "2 alerts: first went wrong"


def test_text_is_bounded_when_there_are_very_many_kinds() -> None:
    text = text_of([group(f"kind {number}") for number in range(MAX_KINDS + 7)], PACE)
    assert "7 more kinds: cordata alerts list" in text
    assert f"kind {MAX_KINDS} went" not in text
