from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs
from tests.integration.alpinebits.hub import CREATED_AT, Hub, open_hub

from alpinehub.hotels import set_hotel_disabled
from alpinehub.report.job import (
    due_portfolio,
    due_reports,
    read_all,
    read_report,
    send_portfolio,
    send_report,
)
from alpinehub.settings import HubSettings
from cordata import PermanentError
from cordata.registry import JobTask
from cordata.services.job import run_job

pytestmark = pytest.mark.usefixtures("each_store")

H1, U1 = 1, 1
DAY = "2024-01-02"
NOW = datetime.fromisoformat("2024-01-03T08:00:00+01:00")
BOOKED = {"total": 1, "currency": "EUR", "room_type": "DZ"}


def with_settings(hub: Hub, *report_to: str, **more: Any) -> None:
    settings = HubSettings(report_to=report_to, **more)
    hub.ctx = structs.replace(hub.ctx, settings={"alpinehub": settings})


async def mails(hub: Hub) -> list[dict[str, Any]]:
    return await hub.execute("SELECT * FROM mail ORDER BY id")


@pytest.mark.usefixtures("one_day")
async def test_figures_count_what_the_day_brought(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", H1)
        await hub.add(H1, "a1")
        await hub.add(H1, "a2", "reservation", **BOOKED)
        await hub.add(H1, "a3")
        await hub.add(H1, "a3", adults=5)
        await hub.add(H1, "a4")
        await hub.read("u1", "H1")
        await hub.add(H1, "a4", "cancelled")
        await hub.read("u1", "H1")
        await hub.read("u2", "H1")
        await hub.acknowledge("u1", (14, "a1"), (15, "a4"), rejected={"a2": "no"})
        await hub.acknowledge("u2", (14, "a1"))
        await hub.add(H1, "a5", adults=0)
        await hub.read("u1", "H1")
        figures = await read_report(hub.ctx, "H1", DAY)
        assert (figures.requests, figures.reservations, figures.received) == (4, 1, 5)
        assert (figures.changes, figures.cancellations) == (1, 1)
        first, second = figures.waiting
        assert (first.account, first.count, first.undeliverable) == ("u1", 2, 1)
        assert (second.account, second.count, second.undeliverable) == ("u2", 3, 0)
        # The cancellation of a4, which u2 never got, is nothing to u2.
        assert first.since_at == CREATED_AT + 4_000_000  # of the version that waits
        sent_on = datetime.now(ZoneInfo("Europe/Rome")).date()
        today = await read_report(hub.ctx, "H1", sent_on.isoformat())
        assert (today.delivered, today.acknowledged, today.rejected) == (5, 2, 1)
        assert today.received == figures.delivered == 0


async def test_figures_are_of_the_hotels_local_day(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        auckland = await hub.add_hotel("NZ", time_zone="Pacific/Auckland")
        await hub.add(auckland, "a1")  # 13:26 UTC: 02:26 of the next day there
        assert (await read_report(hub.ctx, "NZ", "2024-01-02")).received == 0
        assert (await read_report(hub.ctx, "NZ", "2024-01-03")).received == 1


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])  # never on the same day
async def test_report_without_a_day_is_of_today_in_the_zone_of_the_hotel_or_the_summary(
    tmp_path: Path, zone: str
) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub, portfolio_zone=zone)
        await hub.add_hotel("FAR", time_zone=zone)
        first = datetime.now(ZoneInfo(zone)).date()
        told = {
            (await read_report(hub.ctx, "FAR", None)).day,
            (await read_all(hub.ctx, None)).day,
        }
        assert told <= {first, datetime.now(ZoneInfo(zone)).date()}


async def test_hotel_far_west_is_in_the_summary_with_its_last_day_that_was_over(
    tmp_path: Path,
) -> None:
    """What came in its last hours, after eight in Rome, was in no summary."""
    async with open_hub(tmp_path) as hub:
        with_settings(hub)
        west = await hub.add_hotel("LA", time_zone="America/Los_Angeles")
        moment = datetime.fromisoformat("2024-01-02T23:30:00-08:00")
        hub.made_at = round(moment.timestamp()) * 1_000_000
        await hub.add(west, "late")
        told = {}
        for day in (2, 3, 4):
            portfolio = await read_all(hub.ctx, f"2024-01-0{day}")
            [line] = [one for one in portfolio.hotels if one.code == "LA"]
            told[day] = (line.day.day, line.received)
        assert told == {2: (1, 0), 3: (2, 1), 4: (3, 0)}


async def test_reports_are_due_for_each_hotel_at_its_own_time(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_hotel("NZ", time_zone="Pacific/Auckland")  # created on its 3rd of January
        disabled = await hub.add_hotel("OFF")
        odd = await hub.add_hotel("ODD", time_zone="Mars/Olympus")
        await hub.execute("UPDATE hotel SET disabled_at = 1 WHERE id = ?", disabled)
        assert odd
        assert list(await due_reports(hub.ctx, NOW)) == [("H1", DAY)]
        later = datetime.fromisoformat("2024-01-05T00:00:00+01:00")
        assert list(await due_reports(hub.ctx, later)) == [
            ("H1", "2024-01-02"),
            ("H1", "2024-01-03"),
            ("NZ", "2024-01-03"),
            ("NZ", "2024-01-04"),
        ]


@pytest.mark.usefixtures("one_day")
async def test_reports_begin_anew_when_a_hotel_is_enabled_again(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert await due_reports(hub.ctx, NOW)
        await set_hotel_disabled(hub.ctx.store, "H1", True)
        assert "H1" not in {code for code, _ in await due_reports(hub.ctx, NOW)}
        await set_hotel_disabled(hub.ctx.store, "H1", False)
        now = datetime.now(ZoneInfo("Europe/Rome"))
        assert "H1" not in {code for code, _ in await due_reports(hub.ctx, now)}
        later = now + timedelta(days=2)
        days = [day for code, day in await due_reports(hub.ctx, later) if code == "H1"]
        assert days[0] == now.date().isoformat()


async def test_report_is_mailed_once_however_often_it_runs(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub, "agency@example.com")
        await hub.execute(
            "UPDATE hotel SET report_email = 'a@example.com, hütte@example.com, b@example.com'"
        )
        await hub.add(H1, "a1")
        for _ in range(3):
            await send_report(hub.ctx, "H1", DAY)
        await send_report(hub.ctx, "H1", "2024-01-03")
        first, second = await mails(hub)
        assert json.loads(first["to"]) == ["a@example.com", "b@example.com", "agency@example.com"]
        assert "02.01.2024" in first["subject"]
        assert "Eingegangen: 1" in first["text"]
        assert "<html" in first["html"]
        assert first["message_id"] != second["message_id"]


async def test_missed_reports_are_caught_up_by_the_job_and_each_comes_once(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub, "agency@example.com")
        await hub.add_hotel("H2")
        task = JobTask(name="daily-report", run=send_report, due=due_reports, process_lease_s=60)
        first = await run_job(hub.ctx, task, now=NOW)
        assert [(run.scope, run.period) for run in first.ran] == [("H1", DAY), ("H2", DAY)]
        later = datetime.fromisoformat("2024-01-05T12:00:00+01:00")  # a day of staleness
        second = await run_job(hub.ctx, task, now=later)
        assert [run.period for run in second.ran] == [
            f"2024-01-{day:02d}" for day in (3, 4) for _ in ("H1", "H2")
        ]
        assert list(await due_reports(hub.ctx, later)) == []
        assert len(await mails(hub)) == 6
        again = await run_job(hub.ctx, task, scope="H1", period=DAY, force=True, now=later)
        assert len(again.ran) == 1
        assert len(await mails(hub)) == 6


async def test_more_than_two_missed_reports_of_a_hotel_are_one_mail_with_a_row_for_each_day(
    tmp_path: Path,
) -> None:
    """However long the service was down: there were 366 mails for each hotel."""
    async with open_hub(tmp_path) as hub:
        with_settings(hub, "agency@example.com")
        await hub.add_hotel("H2")
        task = JobTask(name="daily-report", run=send_report, due=due_reports, process_lease_s=60)
        await run_job(hub.ctx, task, now=NOW)
        for at in (3, 5):
            moment = datetime.fromisoformat(f"2024-01-0{at}T12:00:00+01:00")
            hub.made_at = round(moment.timestamp()) * 1_000_000
            for version in ({}, {"adults": 5}, {"status": "cancelled"}):
                await hub.add(H1, f"a{at}", **version)
        later = datetime.fromisoformat("2024-01-06T12:00:00+01:00")
        done = await run_job(hub.ctx, task, now=later)
        assert [(run.scope, run.period) for run in done.ran] == [
            ("H1", "2024-01-05"),
            ("H2", "2024-01-05"),
        ]
        assert list(await due_reports(hub.ctx, later)) == []
        mail = (await mails(hub))[2]
        assert "05.01.2024" in mail["subject"] and "Bisher nicht berichtet: 2 Tage" in mail["text"]
        day = "Eingegangen {0}, Änderungen {0}, Stornierungen {0}"
        missed = f"  03.01.2024: {day.format(1)}\n  04.01.2024: {day.format(0)}\n"
        assert missed in mail["text"]
        assert ">03.01.2024</td>" in mail["html"] and ">04.01.2024</td>" in mail["html"]
        after = datetime.fromisoformat("2025-02-10T12:00:00+01:00")
        done = await run_job(hub.ctx, task, now=after)
        assert len(done.ran) == 2 and len(await mails(hub)) == 6
        assert "nicht berichtet: 365 Tage" in (await mails(hub))[-1]["text"]
        assert list(await due_reports(hub.ctx, after)) == []


async def test_report_is_skipped_when_nobody_wants_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub)
        with caplog.at_level(logging.INFO):
            await send_report(hub.ctx, "H1", DAY)
        assert await mails(hub) == []
        assert "no recipients" in caplog.text
        assert list(await due_reports(hub.ctx, NOW)) == []


async def test_report_fails_for_good_when_hotel_or_day_cannot_be(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for code, day in (("H9", DAY), ("H1", "2026-02-30"), ("H1", "9999-12-31"), ("H1", "x")):
            with pytest.raises(PermanentError):
                await read_report(hub.ctx, code, day)


async def test_report_says_that_a_time_zone_is_not_known(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add_hotel("ODD", time_zone="Mars/Olympus")
        with pytest.raises(PermanentError, match="Mars/Olympus"):
            await read_report(hub.ctx, "ODD", DAY)
        with_settings(hub, portfolio_zone="Mars/Olympus")
        with pytest.raises(PermanentError, match="Mars/Olympus"):
            await read_all(hub.ctx, DAY)


async def test_figures_tell_sources_repeats_and_what_made_no_reservation(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.add(H1, "a2")
        await hub.add(H1, "a3", arrival=None, departure=None)
        await hub.add(H1, "a4", "reservation", **BOOKED)
        await hub.add(H1, "a5", "cancelled")
        shop = "INSERT INTO source (hotel_id, kind, name, secret, fingerprint, created_at,"
        await hub.execute(f"{shop} changed_at) VALUES (1, 'wix', 'shop', ?, ?, 0, 0)", b"", b"shop")
        await hub.execute("UPDATE reservation SET source_id = 2 WHERE id = 'a4'")
        await hub.execute("INSERT INTO customer (hotel_id, email, created_at) VALUES (1, 'e@x', 0)")
        await hub.execute("UPDATE reservation SET customer_id = 1 WHERE id <> 'a3'")
        received = (
            "INSERT INTO inbox (source_id, received_at, headers, body, state, request_id)"
            " VALUES (1, ?, '', ?, 'review', '')"
        )
        await hub.execute(received, CREATED_AT, b"")
        hour_at = CREATED_AT - CREATED_AT % 3_600_000_000
        for kind, number in (("duplicate", 1), ("test", 1), ("spam", 2)):
            await hub.execute(
                "INSERT INTO hotel_hour (hotel_id, hour_at, kind, submissions) VALUES (1, ?, ?, ?)",
                hour_at,
                kind,
                number,
            )
        pushed = (
            "INSERT INTO inbound_message (hotel_id, account_id, action, protocol, request_id,"
            " received_at, size_bytes, outcome) VALUES (1, 1, 'x', '2024-10', '', ?, 1, ?)"
        )
        for outcome in ("success", "error"):
            await hub.execute(pushed, CREATED_AT, outcome)
        figures = await read_report(hub.ctx, "H1", DAY)
        assert [(s.source, s.requests, s.reservations, s.leads) for s in figures.sources] == [
            ("shop", 0, 1, 0),
            ("website", 2, 0, 1),
        ]
        assert (figures.received, figures.leads, figures.cancellations) == (4, 1, 1)
        assert figures.days[-1].received == 4
        # One was sent again; a2 is a1 once more, and a4 a booking of the same stay.
        assert (figures.duplicates, figures.repeated) == (1, 2)
        assert (figures.tests, figures.spam, figures.errors, figures.review) == (1, 2, 1, 1)
        before = await read_report(hub.ctx, "H1", "2024-01-01")
        assert (before.duplicates, before.repeated) == (0, 0)


async def test_figures_tell_when_software_last_came(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(H1, "a1")
        await hub.read("u1", "H1")
        [user] = (await read_report(hub.ctx, "H1", DAY)).waiting
        assert user.polled_at is not None and user.acked_at is None
        assert (user.count, user.late) == (1, 1)
        await hub.acknowledge("u1", (14, "a1"))
        [user] = (await read_report(hub.ctx, "H1", DAY)).waiting
        assert user.acked_at is not None
        assert (user.count, user.late) == (0, 0)


async def test_chart_counts_local_days_across_the_change_of_the_clock(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for moment in (
            "2024-03-30T23:59:59+01:00",
            "2024-03-31T00:00:00+01:00",  # 23 hours long
            "2024-03-31T23:59:59+02:00",
            "2024-04-01T00:00:00+02:00",
        ):
            hub.made_at = round(datetime.fromisoformat(moment).timestamp()) * 1_000_000 - 1_000_000
            await hub.add(H1, f"a{hub.made_at}")
        figures = await read_report(hub.ctx, "H1", "2024-04-01")
        assert len(figures.days) == 30
        assert figures.days[0].day.isoformat() == "2024-03-03"
        assert [day.received for day in figures.days][-4:] == [0, 1, 2, 1]
        assert sum(day.received for day in figures.days) == 4


async def test_report_speaks_the_language_that_was_chosen_for_it(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub, "agency@example.com")
        await hub.execute("UPDATE hotel SET settings = ?", '{"report_language": "it", "new": 1}')
        await send_report(hub.ctx, "H1", DAY)
        await hub.execute("UPDATE hotel SET settings = 'damaged'")
        await send_report(hub.ctx, "H1", "2024-01-03")
        assert ["Richieste" in mail["subject"] for mail in await mails(hub)] == [True, False]


async def test_summary_of_all_hotels_has_the_worst_first(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub)
        second = await hub.add_hotel("H2")
        await hub.add_hotel("ODD", time_zone="Mars/Olympus")
        await hub.add_account("u2", second)
        await hub.add(second, "a1")
        portfolio = await read_all(hub.ctx, DAY)
        told = [(one.code, one.received, one.waiting, one.stale) for one in portfolio.hotels]
        assert told == [("H2", 1, 1, True), ("H1", 0, 0, False)]
        assert portfolio.received == portfolio.days[-1].received == 1
        assert portfolio.hotels[0].since_at is not None


async def test_summary_is_mailed_once_for_a_day_and_one_for_all_that_were_missed(
    tmp_path: Path,
) -> None:
    task = JobTask(
        name="portfolio-report", run=send_portfolio, due=due_portfolio, process_lease_s=60
    )
    async with open_hub(tmp_path) as hub:
        with_settings(hub, portfolio_to=("agency@example.com",), portfolio_language="en")
        early = NOW - timedelta(seconds=1)
        assert (await run_job(hub.ctx, task, now=early)).ran == []
        first = await run_job(hub.ctx, task, now=NOW)
        assert [run.period for run in first.ran] == [DAY]
        for _ in range(2):
            await run_job(hub.ctx, task, now=NOW + timedelta(days=3))
        subjects = [mail["subject"] for mail in await mails(hub)]
        assert subjects == [f"All hotels: Guest requests 2024-01-0{day}" for day in (2, 5)]
        late = await run_job(hub.ctx, task, now=NOW + timedelta(days=300))
        assert len(late.ran) == 1


async def test_summary_is_for_nobody_when_nobody_asked(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub, "boss@example.com")
        await send_portfolio(hub.ctx, "", DAY)
        assert await mails(hub) == []
        with_settings(hub, portfolio_zone="Mars/Olympus")
        with pytest.raises(PermanentError, match="portfolio_zone"):
            await due_portfolio(hub.ctx, NOW)
