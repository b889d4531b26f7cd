"""What an operator sees of guest requests, and does to them."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from tests.integration.alpinebits.hub import notif_report_rq, read_rq
from tests.integration.hub.command import Run
from tests.integration.hub.guests import store, submission
from tests.integration.hub.material import BOOKING, Hub, forget_directory, open_hub
from tests.integration.hub.software import ACKNOWLEDGE, READ, send, waiting
from tests.integration.hub.stores import on_sqlite
from tests.raw import raw

from alpinehub.accounts import add_account, grant
from alpinehub.hotels import NewHotel, Unusable, add_hotel
from alpinehub.requests import actions, listing
from alpinehub.requests.listing import RequestFilter
from alpinehub.reservations import ReservationData
from alpinehub.sources import add_source
from cordata.store import Tx

pytestmark = pytest.mark.usefixtures("each_store")


async def book(hub: Hub, number: int = 1, **fields: Any) -> str:
    return (await hub.post({**BOOKING, "external_id": f"n-{number}", **fields})).id


async def second_user(hub: Hub) -> None:
    await add_account(hub.ctx.store, "other", "demo", ["DEMO"])
    forget_directory(hub.ctx)


async def report(hub: Hub, *ids: tuple[int, str], rejected: dict[str, str] | None = None) -> None:
    document = notif_report_rq(ids, rejected or {})
    assert (await send(hub, ACKNOWLEDGE, document, "2024-10")).status == 200


async def listed(hub: Hub, **wanted: Any) -> list[str]:
    return [
        row["id"]
        for row in (await listing.list_requests(hub.ctx.store, RequestFilter(**wanted))).items
    ]


async def history_of(hub: Hub, request_id: str) -> list[tuple[str, str | None]]:
    found = await listing.find_request(hub.ctx.store, request_id)
    return [(one["event"], one["account"]) for one in found["history"]]


async def states(hub: Hub, request_id: str) -> dict[str, str]:
    found = await listing.find_request(hub.ctx.store, request_id)
    return {
        one["account"]: one["state"]
        for one in found["accounts"]
        if one["version"] == found["version"]
    }


async def test_list_tells_what_became_of_each_for_each_account(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await second_user(hub)
        ids = [await book(hub, number) for number in range(4)]
        lead = await book(hub, 9, newsletter=True)
        assert await listed(hub) == [lead, *reversed(ids)]
        await waiting(hub)
        await report(hub, (14, ids[0]), rejected={ids[1]: "no room"})
        assert await states(hub, ids[0]) == {"demo": "acknowledged", "other": "waiting"}
        assert await states(hub, ids[1]) == {"demo": "rejected", "other": "waiting"}
        assert await states(hub, ids[2]) == {"demo": "sent", "other": "waiting"}
        assert await listed(hub, state="acknowledged") == [ids[0]]
        assert await listed(hub, state="rejected") == [ids[1]]
        assert await listed(hub, state="rejected", account="other") == []
        assert await listed(hub, state="open", account="demo") == [lead, ids[3], ids[2]]
        assert len(await listed(hub, state="waiting")) == 5
        assert await listed(hub, status="reservation") == []


async def test_list_is_read_in_pages_of_one_hotel_or_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_READ", 2)
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        await add_hotel(store, NewHotel(code="ROSE", name="Rosé"))
        await add_source(hub.ctx, "ROSE", "generic", "web", "rose-secret")
        forget_directory(hub.ctx)
        ids = []
        for number in range(6):
            hotel = ("DEMO", "demo-secret") if number % 3 else ("ROSE", "rose-secret")
            sent: dict[str, str | None] = {"x-webhook-secret": hotel[1]}
            booking = {**BOOKING, "hotel_code": hotel[0], "external_id": f"n-{number}"}
            ids.append((await hub.post(booking, headers=sent)).id)
        newest = ids[::-1]
        rose = [ids[3], ids[0]]
        for hotel_code, expected in ((None, newest), ("ROSE", rose), ("DEMO", [4, 2, 1])):
            expected = [one if isinstance(one, str) else ids[one] for one in expected]
            if hotel_code == "DEMO":
                expected = [ids[5], *expected]
            found: list[str] = []
            after = None
            while True:
                wanted = RequestFilter(hotel=hotel_code, limit=1, after=after)
                page = await listing.list_requests(store, wanted)
                found += [row["id"] for row in page.items]
                if (after := page.next) is None:
                    break
            assert found == expected
        made = {row["id"]: row["created_at"] for row in await hub.rows("SELECT * FROM reservation")}
        for hotel_code, all_ in ((None, newest), ("ROSE", rose)):
            assert await listed(hub, hotel=hotel_code, since_us=made[ids[3]]) == [
                one for one in all_ if made[one] >= made[ids[3]]
            ]
            until = made[ids[3]] // 1000 * 1000
            assert await listed(hub, hotel=hotel_code, until_us=until) == [
                one for one in all_ if made[one] < until
            ]


async def test_list_has_one_whose_worker_made_its_id_long_before_it_was_stored(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        ids = [await book(hub, number) for number in range(3)]
        rows = await hub.rows("SELECT id, created_at FROM reservation ORDER BY id")
        newest_us = rows[2]["created_at"]

        sql = "UPDATE reservation SET created_at = ? WHERE id = ?"
        await hub.execute(sql, newest_us + 5_000_000, ids[0])
        since_us = newest_us + 1
        for hotel in (None, "DEMO"):
            assert await listed(hub, hotel=hotel, since_us=since_us) == [ids[0]]
            assert await listed(hub, hotel=hotel, until_us=since_us) == [ids[2], ids[1]]


async def test_list_stops_looking_and_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_READ", 2)
    monkeypatch.setattr(listing, "_EXAMINED", 4)
    async with open_hub(tmp_path) as hub:
        ids = [await book(hub, number) for number in range(6)]
        page = await listing.list_requests(hub.ctx.store, RequestFilter(state="rejected"))
        assert (page.items, page.next) == ([], ids[2])


async def test_command_finds_what_is_undeliverable_behind_ten_thousand_newer_ones(
    tmp_path: Path, run: Run
) -> None:
    async with open_hub(tmp_path) as hub:
        held, waits = [await book(hub, number) for number in range(2)]
        many = (
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10100) "
            "INSERT INTO {} SELECT {} FROM n, {} WHERE {} = ?"
        )

        async def fill(tx: Tx) -> None:
            await raw(
                tx, "UPDATE delivery SET undeliverable_code = 'x' WHERE reservation_id = ?", (held,)
            )
            columns = "(id, hotel_id, source_id, version, status, created_at, changed_at)"
            new = "'f' || (100000 + i), hotel_id, source_id, 1, status, created_at, changed_at"
            sql = many.format(f"reservation {columns}", new, "reservation", "id")
            await raw(tx, sql, (held,))
            columns = "(reservation_id, version, content_hash, res_status, data, created_at)"
            columns = columns.replace(")", ", request_id)")
            new = "'f' || (100000 + i), 1, content_hash, res_status, data, created_at, ''"
            sql = many.format(
                f"reservation_version {columns}", new, "reservation_version", "reservation_id"
            )
            await raw(tx, sql, (held,))
            columns = "(reservation_id, account_id, version, hotel_id, unique_id_type, waiting)"
            columns = columns.replace(")", ", acked_at)")
            new = "'f' || (100000 + i), account_id, version, hotel_id, unique_id_type, 0, 1"
            await raw(tx, many.format(f"delivery {columns}", new, "delivery", "reservation_id"),
                      (held,))  # fmt: skip

        await hub.ctx.store.run(fill)
        for words, ids in (
            (("--state", "undeliverable"), [held]),
            (("--state", "open", "--hotel", "DEMO", "--account", "demo"), [waits, held]),
            (("--state", "waiting", "--after", waits), []),
            (("--state", "open", "--limit", "1"), [waits]),
        ):
            found = (await run("requests", "list", "--json", *words)).json
            assert [one["id"] for one in found["items"]] == ids, words
            assert (found["next"] is not None) == ("--limit" in words)
        done = await run("requests", "list", "--state", "rejected")
        assert "nothing found" not in done.err
        assert "10000 guest requests examined\nthere is more: --after f" in done.err


async def test_resend_sends_again_what_was_refused_and_the_history_keeps_why(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await second_user(hub)
        store, one = hub.ctx.store, await book(hub)
        await waiting(hub)
        await report(hub, rejected={one: "no room"})
        assert await waiting(hub) == []
        await hub.handle_events()
        found = await listing.find_request(store, one)
        [refused] = [row["detail"] for row in found["history"] if row["event"] == "rejected"]
        assert refused == {"protocol": "2024-10", "text": "no room"}
        done = await actions.resend(store, one, account="demo", by="eva")
        assert (done.version, done.accounts) == (1, ["demo"])
        await report(hub, (14, one))  # of the first sending, which is over
        assert await states(hub, one) == {"demo": "waiting", "other": "waiting"}
        assert [unique_id for *_, unique_id in await waiting(hub)] == [one]
        await report(hub, (14, one))
        assert await states(hub, one) == {"demo": "acknowledged", "other": "waiting"}
        await hub.handle_events()
        found = await listing.find_request(store, one)
        [resent] = [row["detail"] for row in found["history"] if row["event"] == "resent"]
        assert resent == {"by": "eva", "was": "rejected", "text": "no room"}
        events = [event for event, _ in await history_of(hub, one)]
        assert events.count("delivered") == 2 and events.count("rejected") == 1


async def test_resend_says_so_when_what_waited_was_taken_at_this_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = actions._readers

    async def taken(tx: Any, *more: Any) -> Any:
        await raw(tx, "UPDATE delivery SET waiting = 0, acked_at = 5")
        return await right(tx, *more)

    async with open_hub(tmp_path) as hub:
        store, one = hub.ctx.store, await book(hub)
        await waiting(hub)
        monkeypatch.setattr(actions, "_readers", taken)
        assert (await actions.resend(store, one, account=None, by="eva")).accounts == ["demo"]
        assert await states(hub, one) == {"demo": "waiting"}
        found = await listing.find_request(store, one)
        assert [row["detail"] for row in found["history"] if row["event"] == "resent"] == [
            {"by": "eva"}
        ]


async def test_resend_reaches_an_account_that_came_later(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store, one = hub.ctx.store, await book(hub)
        await waiting(hub)
        await report(hub, (14, one))
        await second_user(hub)
        assert await states(hub, one) == {"demo": "acknowledged"}
        with pytest.raises(Unusable, match="no account 'othre'"):
            await actions.resend(store, one, account="othre", by="eva")
        assert (await actions.resend(store, one, account="other", by="eva")).accounts == ["other"]
        assert [unique_id for *_, unique_id in await waiting(hub, user="other")] == [one]
        await add_account(store, "stranger", "demo", [])
        with pytest.raises(Unusable, match="does not read") as caught:
            await actions.resend(store, one, account="stranger", by="eva")
        assert caught.value.hint == "accounts that do: demo, other"


async def test_cancel_takes_it_from_the_list_until_it_is_resent(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await second_user(hub)
        store, one = hub.ctx.store, await book(hub)
        assert (await actions.cancel(store, one, account="other", by="eva")).accounts == ["other"]
        assert await states(hub, one) == {"demo": "waiting", "other": "cancelled"}
        assert await waiting(hub, user="other") == []
        since = read_rq("DEMO", "2020-01-01T00:00:00Z")
        answer = await send(hub, READ, since, "2024-10", "other")
        assert one.encode() not in answer.body
        assert (await actions.cancel(store, one, account=None, by="eva")).accounts == ["demo"]
        assert (await actions.cancel(store, one, account=None, by="eva")).accounts == []
        assert await listed(hub, state="cancelled") == [one]
        notes = [note for note in await history_of(hub, one) if note[0] == "withdrawn"]
        assert notes == [("withdrawn", "other"), ("withdrawn", "demo")]
        assert (await actions.resend(store, one, account=None, by="eva")).accounts == [
            "demo",
            "other",
        ]
        assert len(await waiting(hub, user="other")) == 1
        assert await book(hub, adults=5) == one  # a change goes out whatever was cancelled
        assert await states(hub, one) == {"demo": "waiting", "other": "waiting"}


async def test_cancellation_is_a_version_of_its_own_for_all_accounts(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store, one = hub.ctx.store, await book(hub)
        await waiting(hub)
        await report(hub, (14, one))
        done = await actions.cancel_at_hotel(store, one, by="eva")
        assert (done.version, done.accounts) == (2, ["demo"])
        assert await waiting(hub) == [("Cancelled", "15", one)]
        with pytest.raises(Unusable, match="cancelled already"):
            await actions.cancel_at_hotel(store, one, by="eva")
        await report(hub, (15, one))
        await hub.handle_events()
        events = [event for event, _ in await history_of(hub, one)]
        assert events.count("cancelled") == events.count("withdrawn") == 1
        assert (await actions.resend(store, one, account=None, by="eva")).accounts == ["demo"]
        assert await waiting(hub) == [("Cancelled", "15", one)]


async def test_cancellation_stands_when_the_source_repeats_what_it_said(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store, one = hub.ctx.store, await book(hub)
        await waiting(hub)  # who never got it is not told that it is cancelled
        await actions.cancel_at_hotel(store, one, by="eva")
        assert await book(hub) == one
        assert await waiting(hub) == [("Cancelled", "15", one)]
        assert await hub.one("SELECT version FROM reservation") == 2
        await book(hub, adults=5)  # he says something new: he wants to come after all
        assert await hub.one("SELECT status FROM reservation") == "request"
        assert await hub.one("SELECT version FROM reservation") == 3


async def test_nobody_knows_an_id_that_is_none(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        for act in (
            listing.find_request(store, "x"),
            listing.list_requests(store, RequestFilter(after="x")),
            actions.resend(store, "x", account=None, by="eva"),
            actions.cancel(store, "x", account=None, by="eva"),
            actions.cancel_at_hotel(store, "x", by="eva"),
        ):
            with pytest.raises(Unusable, match="no guest request 'x'"):
                await act


@on_sqlite
async def test_command_lists_shows_resends_and_cancels(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        one = await book(hub, message="\u202ehidden", last_name="Geheim")
        lead = ReservationData(status="request", email="x@example.com", newsletter=True)
        made = await submission(hub, lead, external_id="n-2")
        other = (await store(hub, made)).reservation_id

        async def command(*words: str, code: int = 0) -> str:
            done = await run("requests", *words, code=code)
            return done.out if code == 0 else done.err

        await send(hub, READ, read_rq("DEMO"), "2018-10")
        table = await command("list", "--hotel", "DEMO")
        assert "demo: sent" in table and "demo: undeliverable (no_stay)" in table
        rows = json.loads(await command("list", "--state", "undeliverable", "--json"))
        assert ([row["id"] for row in rows["items"]], rows["next"]) == ([other], None)
        for since, until, found in (
            ("9999d", "2000-01-02", 0),
            ("2000-01-01", "2999-01-01T12:00", 2),
        ):
            told = await command("list", "--since", since, "--until", until, "--json")
            assert len(json.loads(told)["items"]) == found
        assert "is not a time" in await command("list", "--until", "yesterday", code=2)
        for listed in (table, json.dumps(rows)):
            assert "Geheim" not in listed and "eva@" not in listed
        shown = await command("show", one)
        assert "Geheim" in shown and "\u202e" not in shown
        record = json.loads(await command("show", one, "--json"))
        assert record["data"]["last_name"] == "Geheim"
        assert [row["event"] for row in record["history"]] == ["received", "delivered"]
        assert "<OTA_ResRetrieveRS" in await command("show", one, "--xml", "2017-10")
        assert "no_stay" in await command("show", other, "--xml", "2017-10", code=1)
        assert "waits already" in await command("resend", one)
        assert json.loads(await command("cancel", one, "--json"))["accounts"] == ["demo"]
        assert "waits again for: demo" in await command("resend", one, "--account", "demo")
        assert "--account" in await command(
            "cancel", one, "--account", "demo", "--as-cancellation", code=2
        )
        assert "its cancellation waits for: demo" in await command(
            "cancel", one, "--as-cancellation"
        )
        assert "there is no guest request" in await command("show", "nope", code=1)


async def test_history_names_who_gave_the_command_and_not_who_he_says_he_is(
    tmp_path: Path, run: Run
) -> None:
    async with open_hub(tmp_path) as hub:
        one = await book(hub)
        named = {"LOGNAME": "mallory", "USER": "mallory"}
        await run("requests", "cancel", one, **named)
        found = await listing.find_request(hub.ctx.store, one)
        me = pwd.getpwuid(os.getuid()).pw_name
        assert found["history"][-1]["detail"] == {"by": me}


async def test_race_of_resend_and_change_leaves_only_the_newest_waiting(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await second_user(hub)
        store, one = hub.ctx.store, await book(hub)
        await actions.cancel(store, one, account=None, by="eva")

        async def change(adults: int) -> None:
            await book(hub, adults=adults)

        async with asyncio.TaskGroup() as group:
            for number in range(3, 13):
                group.create_task(change(number))
                group.create_task(actions.resend(store, one, account=None, by="eva"))
                group.create_task(actions.cancel(store, one, account="demo", by="eva"))
        rows = await hub.rows(
            "SELECT d.version, r.version AS newest FROM delivery d JOIN reservation r "
            "ON r.id = d.reservation_id WHERE d.waiting = 1"
        )
        assert all(row["version"] == row["newest"] for row in rows)
        await actions.resend(store, one, account=None, by="eva")
        assert len(await waiting(hub, user="other")) == len(await waiting(hub)) == 1
        await grant_nothing(hub)


async def grant_nothing(hub: Hub) -> None:
    """A grant after all that finds nothing half done."""
    await add_account(hub.ctx.store, "late", "demo", [])
    await grant(hub.ctx.store, "late", "DEMO")
    forget_directory(hub.ctx)
    assert len(await waiting(hub, user="late")) == 1
