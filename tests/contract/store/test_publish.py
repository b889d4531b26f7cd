"""Events and mails are rows of the caller's transaction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.contract.store.conftest import Opener

from cordata.broker.group import Group, register
from cordata.broker.inspection import delete_done
from cordata.clock import to_us
from cordata.errors import Conflict, PermanentError
from cordata.store import Row, Store, Tx, published_topic


async def events(store: Store) -> list[Row]:
    return await store.read(lambda tx: tx.fetch_all("event.rows"))


async def mails(store: Store) -> list[Row]:
    return await store.read(lambda tx: tx.fetch_all("mail.mails"))


async def test_event_is_a_row_when_its_unit_commits(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> str:
            return await tx.publish(
                "booking.made",
                {"at": datetime(2026, 1, 2, tzinfo=UTC), "name": "Über"},
                key="k",
                headers={"lang": "de"},
                priority=3,
                delay_s=1.5,
            )

        event_id = await store.run(unit)
        (row,) = await events(store)
        assert len(event_id) == 32 and row["id"] == event_id
        assert row["payload"] == '{"at":"2026-01-02T00:00:00Z","name":"Über"}'
        assert (row["type"], row["key"]) == ("booking.made", "k")
        assert (row["priority"], row["headers"]) == (3, '{"lang":"de"}')
        assert row["due_at"] - row["created_at"] == 1_500_000


async def test_event_is_not_there_when_its_unit_fails(opened: Opener) -> None:
    async with opened() as store:
        await register(store, [Group("mailer", "booking.made")])

        async def unit(tx: Tx) -> None:
            await tx.publish("booking.made", {})
            raise LookupError

        with pytest.raises(LookupError):
            await store.run(unit)
        assert await events(store) == []
        assert await store.wait(published_topic("booking.made"), 0.01) is False


async def test_position_is_not_given_again_when_all_events_are_deleted(opened: Opener) -> None:
    """A group gets only events after the position at which it was registered."""
    async with opened() as store:

        async def publish(tx: Tx) -> str:
            return await tx.publish("booking.made", {})

        deleted = await store.run(publish)
        before = await store.read(lambda tx: tx.fetch_one("inspection.span"))
        await store.run(lambda tx: delete_done(tx, [deleted]))
        assert await events(store) == []
        await store.run(publish)
        after = await store.read(lambda tx: tx.fetch_one("inspection.span"))
        assert before is not None and after is not None
        assert after["lowest"] > before["highest"]


async def test_event_is_due_at_its_moment_and_at_once_when_that_is_past(opened: Opener) -> None:
    async with opened() as store:
        later = datetime(2100, 1, 1, 8, tzinfo=timezone(timedelta(hours=1)))

        async def unit(tx: Tx) -> None:
            await tx.publish("booking.made", {}, at=later)
            await tx.publish("booking.made", {}, at=to_us(later) + 1)
            await tx.publish("booking.made", {}, at=datetime(2001, 1, 1, tzinfo=UTC))
            await tx.publish("booking.made", {}, delay_s=-5.0)

        await store.run(unit)
        first, second, past, negative = await events(store)
        assert (first["due_at"], second["due_at"]) == (to_us(later), to_us(later) + 1)
        for row in (past, negative):
            assert row["due_at"] == row["created_at"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 2**31},
        {"at": datetime(2100, 1, 1, tzinfo=UTC), "delay_s": 1.0},
        {"at": datetime(2100, 1, 1)},  # noqa: DTZ001
    ],
)
async def test_event_is_refused_when_its_priority_or_moment_is_none(
    opened: Opener, wrong: dict[str, Any]
) -> None:
    async with opened() as store:
        with pytest.raises((PermanentError, ValueError)):
            await store.run(lambda tx: tx.publish("booking.made", {}, **wrong))
        assert await events(store) == []


async def test_publish_conflicts_when_the_event_id_exists(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> str:
            return await tx.publish("booking.made", {}, event_id="e1")

        assert await store.run(unit) == "e1"
        with pytest.raises(Conflict):
            await store.run(unit)


async def test_event_ids_grow_when_time_does(opened: Opener) -> None:
    async with opened() as store:
        ids = [await store.run(lambda tx: tx.publish("t", {})) for _ in range(5)]
        times = [int(event_id[:12], 16) for event_id in ids]
        assert times == sorted(times) and len(set(ids)) == 5


async def test_consumer_is_woken_when_an_event_is_committed(opened: Opener) -> None:
    async with opened() as one, opened() as two:
        await register(one, [Group("mailer", "t")])
        for batch in (False, True):
            await one.run(lambda tx: tx.publish("t", {}), batch=batch)
            assert await two.wait(published_topic("t"), 60.0) is True
            assert await one.wait(published_topic("t"), 60.0) is True
        async with one.transaction() as tx:
            await tx.publish("t", {})
        assert await two.wait(published_topic("t"), 60.0) is True

        async def publish_and_read(tx: Tx) -> None:
            await tx.publish("t", {})
            await tx.fetch_all("mail.mails")

        async def read_and_publish(tx: Tx) -> None:
            await tx.fetch_all("mail.mails")
            await tx.publish("t", {})

        for unit in (publish_and_read, read_and_publish):
            await one.run(unit)
            assert await two.wait(published_topic("t"), 60.0) is True


async def test_event_of_another_type_does_not_wake_a_consumer(opened: Opener) -> None:
    ours, others = published_topic("ours"), published_topic("others")
    async with opened() as one, opened() as two:
        await register(one, [Group("ours", "ours"), Group("others", "others")])
        for batch in (False, True):
            await one.run(lambda tx: tx.publish("others", {}), batch=batch)
            for store in (one, two):
                assert await store.wait(others, 60.0) is True
                assert await store.wait(ours, 0.0) is False
        await one.run(lambda tx: tx.publish("ours", {}))
        assert await two.wait(ours, 60.0) is True


@pytest.mark.parametrize("batch", [False, True])
async def test_other_topics_of_a_unit_are_woken_when_no_group_gets_its_event(
    opened: Opener, batch: bool
) -> None:
    """Also one whose name begins as that of the published events."""

    async def unit(tx: Tx) -> None:
        await tx.publish("t", {})
        tx.notify("queue_is_full")

    async with opened() as one, opened() as two:
        await one.run(unit, batch=batch)
        assert await two.wait("queue_is_full", 60.0) is True


@pytest.mark.parametrize("batch", [False, True])
async def test_consumer_is_not_woken_when_no_group_gets_the_event(
    opened: Opener, batch: bool
) -> None:
    async with opened() as store:
        await store.run(lambda tx: tx.publish("t", {}), batch=batch)
        assert await store.wait(published_topic("t"), 0.02) is False


async def test_mail_is_written_once_when_its_message_id_repeats(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> str:
            return await tx.send_mail(
                to=["a@example.org", "b@example.org"],
                subject="Report",
                text="7",
                html="<b>7</b>",
                message_id="<report-1@cordata>",
            )

        assert [await store.run(unit) for _ in range(2)] == ["<report-1@cordata>"] * 2
        (row,) = await mails(store)
        assert row["to"] == '["a@example.org","b@example.org"]'
        assert (row["subject"], row["text"], row["html"]) == ("Report", "7", "<b>7</b>")
        assert row["state"] == "pending"
        assert await store.wait("mail", 60.0) is True


async def test_mail_gets_a_message_id_when_none_is_given(opened: Opener) -> None:
    async with opened() as store:

        async def unit(tx: Tx) -> str:
            return await tx.send_mail(to=["a@example.org"], subject="s", text="t")

        first, second = await store.run(unit), await store.run(unit)
        assert first != second
        assert first.startswith("<") and "@" in first and first.endswith(">")


@pytest.mark.parametrize("to", ["a@example.org", [], ()])
async def test_mail_is_refused_when_it_is_to_no_list_of_addresses(
    opened: Opener, to: Sequence[str]
) -> None:
    async with opened() as store:
        with pytest.raises(PermanentError, match="list of addresses"):
            await store.run(lambda tx: tx.send_mail(to=to, subject="s", text="t"))
        assert await mails(store) == []


@pytest.mark.parametrize(
    ("type_", "key", "event_id", "said"),
    [
        ("", None, None, "type has 0 characters"),
        ("t" * 201, None, None, "type has 201 characters"),
        ("t", "k" * 1025, None, "key has 1,025 bytes"),
        ("t", "ü" * 513, None, "key has 1,026 bytes"),
        ("t", "\ud800" * 400, None, "key has 1,200 bytes"),
        ("t", None, "i" * 201, "event_id has 201"),
        ("t", None, "", "event_id has 0"),
        ("t\0", None, None, "NUL character"),
        ("t", "k\0", None, "NUL character"),
    ],
)
async def test_event_is_refused_when_a_name_is_too_long_or_empty(
    opened: Opener, type_: str, key: str | None, event_id: str | None, said: str
) -> None:
    """PostgreSQL could not index it, whether it can be compressed or not."""
    async with opened() as store:
        with pytest.raises(PermanentError, match=said) as caught:
            await store.run(lambda tx: tx.publish(type_, {}, key=key, event_id=event_id))
        assert "kkk" not in str(caught.value)
        assert await events(store) == []


def incompressible(length: int) -> str:
    """Characters of four bytes each, as unlike each other as can be."""
    letters = random.Random(length)
    return "".join(chr(letters.randrange(0x10000, 0x20000)) for _ in range(length))


async def test_event_is_taken_with_the_longest_names_when_they_do_not_compress(
    opened: Opener,
) -> None:
    async with opened() as store:
        type_, key, event_id = incompressible(200), incompressible(256), incompressible(199)
        await store.run(lambda tx: tx.publish(type_, {}, key=key, event_id=event_id))
        (row,) = await events(store)
        assert (row["type"], row["key"], row["id"]) == (type_, key, event_id)


async def test_mail_is_refused_when_its_message_id_is_too_long(opened: Opener) -> None:
    async with opened() as store:
        with pytest.raises(PermanentError, match="Message-ID has 1,025 bytes"):
            await store.run(
                lambda tx: tx.send_mail(to=["a@b"], subject="", text="", message_id="x" * 1025)
            )
