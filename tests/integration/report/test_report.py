from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.integration.alpinebits.database import Found
from tests.integration.alpinebits.hub import CREATED_AT, Hub, open_hub

from alpinehub.hotels import set_hotel_disabled
from alpinehub.report.job import due_reports, read_report, send_report
from cordata import PermanentError
from cordata.registry import JobTask
from cordata.services.job import run_job

pytestmark = pytest.mark.usefixtures("each_store")

H1, U1 = 1, 1
DAY = "2024-01-02"
NOW = datetime.fromisoformat("2024-01-03T08:00:00+01:00")
BOOKED = {"total": 1, "currency": "EUR", "room_type": "DZ"}


@dataclass(frozen=True)
class Settings:
    report_to: tuple[str, ...] = ()


def with_settings(hub: Hub, *report_to: str) -> None:
    hub.ctx = replace(hub.ctx, settings={"alpinehub": Settings(report_to)})


def mails(hub: Hub) -> list[Found]:
    return hub.db.execute("SELECT * FROM mail ORDER BY id")


async def test_figures_count_what_the_day_brought(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        hub.add_user("u2", H1)
        hub.add(H1, "a1")
        hub.add(H1, "a2", "reservation", **BOOKED)
        hub.add(H1, "a3")
        hub.add(H1, "a3", adults=5)
        hub.add(H1, "a4")
        hub.add(H1, "a4", "cancelled")
        await hub.read("u1", "H1")
        await hub.read("u2", "H1")
        await hub.acknowledge("u1", (14, "a1"), (15, "a4"), refused={"a2": "no"})
        await hub.acknowledge("u2", (14, "a1"))
        hub.add(H1, "a5", adults=0)
        await hub.read("u1", "H1")
        figures = await read_report(hub.ctx, "H1", DAY)
        assert (figures.requests, figures.reservations, figures.received) == (4, 1, 5)
        assert (figures.changes, figures.cancellations) == (1, 1)
        first, second = figures.waiting
        assert (first.user, first.count, first.held) == ("u1", 2, 1)
        assert (second.user, second.count, second.held) == ("u2", 4, 0)
        assert first.since_at == CREATED_AT + 4_000_000  # of the version that waits
        sent_on = datetime.now(ZoneInfo("Europe/Rome")).date()
        today = await read_report(hub.ctx, "H1", sent_on.isoformat())
        assert (today.delivered, today.acknowledged, today.refused) == (4, 2, 1)
        assert today.received == figures.delivered == 0


async def test_figures_are_of_the_hotels_local_day(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        auckland = hub.add_hotel("NZ", time_zone="Pacific/Auckland")
        hub.add(auckland, "a1")  # 13:26 UTC: 02:26 of the next day there
        assert (await read_report(hub.ctx, "NZ", "2024-01-02")).received == 0
        assert (await read_report(hub.ctx, "NZ", "2024-01-03")).received == 1


async def test_reports_are_due_for_each_hotel_at_its_own_time(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        hub.add_hotel("NZ", time_zone="Pacific/Auckland")  # created on its 3rd of January
        disabled = hub.add_hotel("OFF")
        odd = hub.add_hotel("ODD", time_zone="Mars/Olympus")
        hub.db.execute("UPDATE hotel SET disabled_at = 1 WHERE id = ?", disabled)
        assert odd
        assert list(await due_reports(hub.ctx, NOW)) == [("H1", DAY)]
        later = datetime.fromisoformat("2024-01-05T00:00:00+01:00")
        assert list(await due_reports(hub.ctx, later)) == [
            ("H1", "2024-01-02"),
            ("H1", "2024-01-03"),
            ("NZ", "2024-01-03"),
            ("NZ", "2024-01-04"),
        ]


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
        hub.db.execute("UPDATE hotel SET report_email = 'a@example.com, b@example.com'")
        hub.add(H1, "a1")
        for _ in range(3):
            await send_report(hub.ctx, "H1", DAY)
        await send_report(hub.ctx, "H1", "2024-01-03")
        first, second = mails(hub)
        assert json.loads(first["to"]) == ["a@example.com", "b@example.com", "agency@example.com"]
        assert "02.01.2024" in first["subject"]
        assert "Eingegangen: 1" in first["text"]
        assert "<html" in first["html"]
        assert first["message_id"] != second["message_id"]


async def test_missed_reports_are_caught_up_by_the_job_and_each_comes_once(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub, "agency@example.com")
        hub.add_hotel("H2")
        task = JobTask(name="daily-report", run=send_report, due=due_reports, claim_timeout_s=60)
        first = await run_job(hub.ctx, task, runtime_dir=tmp_path, now=NOW)
        assert [(run.scope, run.period) for run in first.ran] == [("H1", DAY), ("H2", DAY)]
        later = datetime.fromisoformat("2024-01-06T12:00:00+01:00")  # two days of silence
        second = await run_job(hub.ctx, task, runtime_dir=tmp_path, now=later)
        assert [run.period for run in second.ran] == [
            f"2024-01-{day:02d}" for day in (3, 4, 5) for _ in ("H1", "H2")
        ]
        assert list(await due_reports(hub.ctx, later)) == []
        assert len(mails(hub)) == 8
        again = await run_job(
            hub.ctx, task, runtime_dir=tmp_path, scope="H1", period=DAY, force=True, now=later
        )
        assert len(again.ran) == 1
        assert len(mails(hub)) == 8


async def test_report_is_skipped_when_nobody_wants_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        with_settings(hub)
        with caplog.at_level(logging.INFO):
            await send_report(hub.ctx, "H1", DAY)
        assert mails(hub) == []
        assert "no recipients" in caplog.text
        assert list(await due_reports(hub.ctx, NOW)) == []


async def test_report_fails_for_good_when_hotel_or_day_cannot_be(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        for code, day in (("H9", DAY), ("H1", "2026-02-30"), ("H1", "9999-12-31"), ("H1", "x")):
            with pytest.raises(PermanentError):
                await read_report(hub.ctx, code, day)
