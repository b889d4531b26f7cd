"""What a source repeats, or sends late, changes nothing that the hotel's software is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.material import BOOKING, PRICE, Answer, Hub, open_hub
from tests.integration.hub.software import take
from tests.integration.hub.test_generic import CANCEL

pytestmark = pytest.mark.usefixtures("each_store")
BOOKED: dict[str, Any] = {**BOOKING, **PRICE}


async def say(hub: Hub, payload: dict[str, Any], **more: Any) -> Answer:
    answer = await hub.post({**payload, **more})
    assert answer.status == 200, answer.body
    return answer


async def test_booking_stays_cancelled_when_its_request_is_sent_again(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first = await say(hub, BOOKED)
        assert await take(hub) == ["Reserved"]
        await say(hub, CANCEL)
        assert await take(hub) == ["Cancelled"]
        assert (await say(hub, BOOKED)).id == first.id
        assert await take(hub) == []
        assert await hub.one("SELECT status FROM reservation") == "cancelled"
        assert await hub.one("SELECT count(*) FROM reservation_version") == 2


async def test_no_version_before_a_cancellation_comes_back(tmp_path: Path) -> None:
    """Not the newest before it only, and not after the guest booked anew either."""
    async with open_hub(tmp_path) as hub:
        first, second = BOOKED, {**BOOKED, "adults": 3}
        for payload in (first, second, CANCEL):
            await say(hub, payload)
            await take(hub)
        for stale in (first, second):
            await say(hub, stale)
            assert await take(hub) == []
        await say(hub, BOOKED, adults=4)
        assert await take(hub) == ["Reserved"]
        for stale in (first, second):
            await say(hub, stale)
            assert await take(hub) == []
        await say(hub, CANCEL)  # the same words as before, of the new booking
        assert await take(hub) == ["Cancelled"]


async def test_version_that_was_said_before_counts_when_nothing_was_cancelled(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await say(hub, BOOKED)
        await take(hub)
        await say(hub, BOOKED, adults=3)
        assert await take(hub) == ["Modify"]
        await say(hub, BOOKED)  # three were too many
        assert await take(hub) == ["Modify"]


@pytest.mark.parametrize(
    ("name", "early", "late", "latest"),
    [
        ("sequence", 7, 8, 9),
        (
            "sent_at",
            "2026-01-02T10:00:00+01:00",
            "2026-01-02T09:00:00.5Z",
            "2026-01-02T12:00:00+02:00",
        ),
    ],
)
async def test_order_of_the_sender_decides(
    tmp_path: Path, name: str, early: object, late: object, latest: object
) -> None:
    async with open_hub(tmp_path) as hub:
        first = await say(hub, BOOKED, **{name: late})
        assert await take(hub) == ["Reserved"]
        older = await say(hub, BOOKED, adults=3, **{name: early})  # overtaken on its way
        assert older.id == first.id and await take(hub) == []
        assert (await say(hub, CANCEL, **{name: early})).id == first.id
        assert await take(hub) == []
        await say(hub, CANCEL, **{name: late})
        assert await take(hub) == ["Cancelled"]
        await say(hub, BOOKED, **{name: late})
        assert await take(hub) == []
        await say(hub, BOOKED, **{name: latest})  # the guest booked the same again
        assert await take(hub) == ["Reserved"]


async def test_order_is_that_of_the_newest_that_came_though_it_said_nothing_new(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await say(hub, BOOKED, sequence=1)
        await say(hub, BOOKED, sequence=3)
        await take(hub)
        await say(hub, BOOKED, adults=3, sequence=2)
        assert await take(hub) == []


async def test_sender_whose_clock_was_ahead_is_heard_later(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await say(hub, BOOKED, sent_at="2199-01-01T00:00:00Z")
        await take(hub)
        hub.harness.advance(minutes=1)
        now = hub.harness.now.isoformat()
        await say(hub, BOOKED, adults=3, sent_at=now)
        assert await take(hub) == ["Modify"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence", -1),
        ("sequence", 2**63),
        ("sequence", "7"),
        ("sent_at", "2026-01-02"),
        ("sent_at", "2026-01-02T10:00:00"),
        ("sent_at", "yesterday"),
        ("sent_at", 1_767_000_000),
    ],
)
async def test_order_that_cannot_be_read_is_told(tmp_path: Path, name: str, value: object) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await hub.post({**BOOKED, name: value})
        assert answer.status == 422 and answer.fields == [name]


async def test_idempotency_key_gives_the_first_answer_after_a_cancellation(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        first = await hub.post(BOOKED, headers={"idempotency-key": "k-1"})
        await hub.post(CANCEL, headers={"idempotency-key": "k-2"})
        await take(hub)
        again = await hub.post(BOOKED, headers={"idempotency-key": "k-1"})
        assert again.id == first.id and await take(hub) == []
