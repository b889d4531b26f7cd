"""What is kept long enough goes, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.integration.hub.guests import leave, settle, write
from tests.integration.hub.material import BOOKING, Hub, open_hub
from tests.raw import raw, until_blocked

from alpinehub import retention
from alpinehub.customers import traces
from alpinehub.customers.erasure import erase_traces
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.settings import HubSettings
from alpinehub.sources import add_source
from cordata import Row, Store

pytestmark = pytest.mark.usefixtures("each_store")
NEVER: dict[str, Any] = {
    f.name: 0 for f in dataclasses.fields(HubSettings) if f.name.endswith("_days")
}

PAST: dict[str, Any] = {"arrival": date(2020, 1, 1), "departure": date(2020, 1, 3)}


@asynccontextmanager
async def keeping(path: Path, **days: int) -> AsyncIterator[Hub]:
    """A hub that keeps what is named for so many days, and the rest for ever."""
    async with open_hub(path) as hub:
        settings = dataclasses.replace(HubSettings(), **{**NEVER, **days})
        hub.ctx = structs.replace(hub.ctx, settings={"alpinehub": settings})
        yield hub


async def wait(hub: Hub, days: float) -> dict[str, int]:
    """Let days go by, then do what the primary does; what was ended."""
    hub.harness.advance(days=days)
    return {kind: count for kind, count in (await retention.retain(hub.ctx)).items() if count}


async def take_all(hub: Hub) -> None:
    """Hotel software takes what waits."""
    await hub.execute("UPDATE delivery SET waiting = 0, acked_at = 1")


async def count(hub: Hub, table: str) -> int:
    return int(await hub.one(f"SELECT count(*) FROM {table}"))


async def test_nothing_goes_when_nothing_is_to_go(tmp_path: Path) -> None:
    async with keeping(tmp_path) as hub:
        await write(hub, email="a@example.com", body=b"text")
        await take_all(hub)
        assert await wait(hub, 10_000) == {}
        assert await hub.one("SELECT count(*) FROM inbox WHERE length(body) > 0") == 1


async def test_text_of_a_submission_goes_but_not_what_waits_for_a_person(tmp_path: Path) -> None:
    async with keeping(tmp_path, inbox_days=90) as hub:
        await write(hub, email="a@example.com", body=b"text")
        await leave(hub, "review", b"text")
        assert await wait(hub, 89) == {}
        await write(hub, email="b@example.com", body=b"text")
        assert await wait(hub, 2) == {"inbox_days": 1}
        rows = await hub.rows("SELECT state, headers, body FROM inbox ORDER BY id")
        assert [bytes(row["body"]) for row in rows] == [b"", b"text", b"text"]
        assert await wait(hub, 1) == {}, "once"


async def test_text_goes_after_the_clock_was_set_back(tmp_path: Path) -> None:
    async with keeping(tmp_path, inbox_days=90) as hub:
        await write(hub, email="a@example.com", body=b"text")
        assert await wait(hub, 0) == {}
        for one in retention._passes[hub.ctx.store].values():
            assert one.done_at is not None
            one.done_at += 10 * 365 * 86_400 * 1_000_000
        assert await wait(hub, 91) == {"inbox_days": 1}


async def test_history_and_pushes_go_when_they_are_old(tmp_path: Path) -> None:
    async with keeping(tmp_path, history_days=30, inbound_days=10) as hub:
        await hub.post(BOOKING)
        await hub.handle_events()
        sql = (
            "INSERT INTO inbound_message (hotel_id, account_id, action, protocol, request_id,"
            " received_at, size_bytes, outcome) VALUES (1, 1, 'a', '2024-10', 'r', ?, 1, 'success')"
        )
        await hub.execute(sql, hub.ctx.now_us())
        sql = (
            "INSERT INTO reservation_event (reservation_id, version, event, at, request_id)"
            " SELECT id, 1, 'delivered', changed_at, 'r' FROM reservation"
        )
        await hub.execute(sql)
        assert await wait(hub, 11) == {"inbound_days": 1}
        assert await wait(hub, 20) == {"history_days": 1}
        assert await count(hub, "reservation_event") == 0 == await count(hub, "inbound_message")
        assert await count(hub, "reservation") == 1


async def test_request_goes_with_all_of_it_when_its_stay_is_over_and_nothing_waits(
    tmp_path: Path,
) -> None:
    async with keeping(tmp_path, reservation_days=30) as hub:
        far: dict[str, Any] = {"arrival": date(2199, 1, 1), "departure": date(2199, 1, 3)}
        gone = await write(hub, email="a@example.com", **PAST)
        kept = [await write(hub, email="b@example.com", **far)]
        await hub.handle_events()
        await take_all(hub)
        kept.append(await write(hub, email="c@example.com", **PAST))  # waits
        assert await wait(hub, 29) == {}
        kept.append(await write(hub, email="d@example.com", **PAST))
        assert await wait(hub, 2) == {"reservation_days": 1}
        for table in ("delivery", "inbox", "reservation_history", "reservation_version"):
            ids = {row["reservation_id"] for row in await hub.rows(f"SELECT * FROM {table}")}
            assert gone not in ids and (table == "reservation_history" or ids == set(kept))
        assert {row["id"] for row in await hub.rows("SELECT id FROM reservation")} == set(kept)


async def test_request_that_went_is_a_new_one_when_its_source_changes_it(tmp_path: Path) -> None:
    async with keeping(tmp_path, reservation_days=30) as hub:
        gone = await write(hub, number="n-1", email="a@example.com", **PAST)
        await take_all(hub)
        assert await wait(hub, 31) == {"reservation_days": 1}
        again = await write(hub, number="n-1", email="a@example.com", message="again", **PAST)
        assert again != gone and await count(hub, "reservation_version") == 1


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
async def test_request_that_goes_just_now_is_a_new_one_when_its_source_changes_it(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        gone = await write(hub, number="n-1", email="a@example.com")
        async with asyncio.TaskGroup() as group:
            async with other.ctx.store.transaction() as tx:
                for table in ("delivery", "inbox", "reservation_version"):
                    await raw(tx, f"DELETE FROM {table}")
                await raw(tx, "DELETE FROM reservation")
                again = group.create_task(write(hub, number="n-1", email="b@example.com"))
                await until_blocked(other.ctx.store)
        assert again.result() != gone
        assert await count(hub, "reservation") == 1 == await count(hub, "reservation_version")


async def test_customer_is_erased_when_he_did_not_write_for_long(tmp_path: Path) -> None:
    async with keeping(tmp_path, customer_days=365) as hub:
        await write(hub, email="gone@example.com", last_name="Gone", **PAST)
        await write(
            hub, email="comes@example.com", arrival=date(2199, 1, 1), departure=date(2199, 1, 8)
        )
        await write(hub, email="again@example.com", **PAST)
        await take_all(hub)
        await write(hub, email="waits@example.com", **PAST)
        await settle(hub)
        assert await wait(hub, 300) == {}
        await write(hub, email="again@example.com", **PAST)
        assert await wait(hub, 66) == {"customer_days": 1}
        left = [row["email"] for row in await hub.rows("SELECT email FROM customer ORDER BY id")]
        assert left == ["comes@example.com", "again@example.com", "waits@example.com"]
        said = await hub.rows("SELECT data FROM reservation_version")
        assert not any("gone" in row["data"].lower() for row in said)
        assert await count(hub, "reservation") == 5
        erased = "SELECT detail FROM reservation_history WHERE event = 'erased'"
        assert json.loads(await hub.one(erased)) == {"by": "retention"}


async def test_customer_who_wrote_since_he_was_looked_at_stays(tmp_path: Path) -> None:
    async with keeping(tmp_path) as hub:
        await write(hub, email="again@example.com", **PAST)
        hub.harness.advance(days=400)
        looked_at = hub.ctx.now_us()
        await write(hub, email="again@example.com", **PAST)
        await take_all(hub)
        [known] = await hub.rows("SELECT id FROM customer")
        assert await retention._erase_customers(hub.ctx, [known["id"]], looked_at) == 0
        assert await count(hub, "customer") == 1
        assert await retention._erase_customers(hub.ctx, [known["id"]], hub.ctx.now_us() + 1) == 1


async def test_inbox_is_read_once_for_many_customers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PERSONS", 3)
    async with keeping(tmp_path, customer_days=365) as hub:
        names = [f"guest{number}@example.com" for number in range(10)]
        for name in names:
            await write(hub, email=name, **PAST)
        await take_all(hub)
        await leave(hub, "rejected", f"<{names[0]}> {names[9]}.".encode())
        await leave(hub, "rejected", b"another@example.com")
        read: list[str] = []
        pages = traces._pages

        def counted(
            store: Store, window: str, *more: Any
        ) -> AsyncIterator[tuple[float, list[Row]]]:
            read.append(window)
            return pages(store, window, *more)

        monkeypatch.setattr(traces, "_pages", counted)
        assert await wait(hub, 400) == {"customer_days": 10}
        assert read.count("customer_inbox_range") == 1
        left = await hub.rows("SELECT body FROM inbox WHERE request_id = 'r' ORDER BY id")
        assert [bytes(row["body"]) for row in left] == [b"", b"another@example.com"]


async def test_customers_who_write_while_others_are_erased_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PERSONS", 2)
    async with keeping(tmp_path, customer_days=365) as hub:
        for number in range(5):
            await write(hub, email=f"guest{number}@example.com", **PAST)
        await take_all(hub)

        async def meanwhile(*args: Any) -> Any:
            await write(hub, email="guest2@example.com", last_name="Again")
            # Of a hotel without software nothing waits; it is not erased for that.
            await take_all(hub)
            return await erase_traces(*args)

        monkeypatch.setattr(retention, "erase_traces", meanwhile)
        assert await wait(hub, 400) == {"customer_days": 4}
        assert [row["email"] for row in await hub.rows("SELECT email FROM customer")] == [
            "guest2@example.com"
        ]
        said = await hub.rows("SELECT data FROM reservation_version")
        assert sum("Again" in row["data"] for row in said) == 1


async def test_submission_that_waits_is_left_when_its_old_customer_is_erased(
    tmp_path: Path,
) -> None:
    async with keeping(tmp_path, customer_days=365) as hub:
        await write(hub, email="gone@example.com", **PAST)
        await take_all(hub)
        hub.harness.advance(days=364)
        for state in ("review", "rejected"):
            await leave(hub, state, b'{"email": "gone@example.com"}')
        assert await wait(hub, 2) == {"customer_days": 1}
        rows = await hub.rows("SELECT state, body FROM inbox WHERE request_id = 'r' ORDER BY id")
        left = [(row["state"], bool(row["body"])) for row in rows]
        assert left == [("review", True), ("rejected", False)]


async def open_hotel(hub: Hub, code: str, settings: str) -> None:
    """A hotel with settings of its own, and a source."""
    await add_hotel(hub.ctx.store, NewHotel(code=code, name=code))
    await add_source(hub.ctx, code, "generic", "website", f"secret-of-{code}")
    await hub.execute("UPDATE hotel SET settings = ? WHERE code = ?", settings, code)


async def test_hotel_has_a_retention_of_its_own(tmp_path: Path) -> None:
    async with keeping(tmp_path, inbox_days=90) as hub:
        for code, settings in (
            ("KEEPS", '{"retention": {"inbox_days": 0}}'),
            ("SHORT", '{"retention": {"inbox_days": 5}, "of_a_newer_program": [1]}'),
            ("BAD", '{"retention": 7}'),
        ):
            await open_hotel(hub, code, settings)
            await leave(hub, "rejected", b"text", code)
        await write(hub, email="a@example.com", body=b"text")
        assert await wait(hub, 6) == {"inbox_days": 1}
        assert await wait(hub, 85) == {"inbox_days": 1}
        assert await hub.one("SELECT count(*) FROM inbox WHERE length(body) > 0") == 2


async def test_run_goes_on_where_the_one_before_ran_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "WINDOW", 3)
    monkeypatch.setattr(retention, "_PAUSE_S", 0)
    async with keeping(tmp_path, inbox_days=1) as hub:
        for number in range(10):
            await write(hub, email=f"{number}@example.com", body=b"text")
        monkeypatch.setattr(retention, "_LONGEST_S", -1.0)
        assert await wait(hub, 2) == {}
        monkeypatch.setattr(retention, "_LONGEST_S", 60.0)
        assert await wait(hub, 0) == {"inbox_days": 10}


async def test_primary_does_it_by_itself(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await write(hub, email="a@example.com", body=b"text")
        hub.harness.advance(days=91)
        await hub.harness.run_periodic("retain")
        assert await hub.one("SELECT count(*) FROM inbox WHERE length(body) > 0") == 0


async def test_submission_that_nobody_settles_is_rejected_with_its_text_after_an_alert(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def alerts() -> list[str]:
        told = [one.getMessage() for one in caplog.records if "ALERT" in vars(one)]
        caplog.clear()
        return [one for one in told if "will be rejected" in one]

    async with keeping(tmp_path, review_days=60) as hub:
        await open_hotel(hub, "KEEPS", '{"retention": {"review_days": 0}}')
        await leave(hub, "review", b"Eva Rossi")
        await leave(hub, "review", b"Eva Rossi", "KEEPS")
        assert await wait(hub, 45) == {} and alerts() == []
        assert await wait(hub, 2) == {}
        [said] = alerts()
        assert "hotel DEMO" in said and "1 of them within 14 days, the first in 13" in said
        await leave(hub, "review", b"Eva Rossi")
        assert await wait(hub, 14) == {"review_days": 1}
        sql = "SELECT state, error, body, headers, handled_at FROM inbox ORDER BY id"
        gone, kept, new = await hub.rows(sql)
        assert gone["state"] == "rejected" and "review_days" in gone["error"]
        assert (bytes(gone["body"]), gone["headers"]) == (b"", "{}") and gone["handled_at"]
        assert [(one["state"], bytes(one["body"])) for one in (kept, new)] == [
            ("review", b"Eva Rossi")
        ] * 2


async def test_nothing_is_left_of_a_request_that_went_before_its_events_were_handled(
    tmp_path: Path,
) -> None:
    """On the one store a reference would be broken, on the other a row would be left for ever."""
    async with keeping(tmp_path, reservation_days=30, history_days=700) as hub:
        await write(hub, email="a@example.com", **PAST)
        await take_all(hub)
        assert await wait(hub, 31) == {"reservation_days": 1}
        await hub.handle_events()
        assert await count(hub, "reservation_event") == 0


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
async def test_history_without_its_request_goes_in_its_time(tmp_path: Path) -> None:
    async with keeping(tmp_path, history_days=30) as hub:
        sql = (
            "INSERT INTO reservation_event (reservation_id, version, event, at, request_id)"
            " VALUES ('gone', 1, 'received', ?, '')"
        )
        await hub.execute(sql, hub.ctx.now_us())
        assert await wait(hub, 29) == {}
        assert await wait(hub, 2) == {"history_days": 1}
