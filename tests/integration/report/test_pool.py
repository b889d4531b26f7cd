"""The daily report by the pool, and by the job's own process when the pool does not do it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.pool.running import running
from tests.integration.alpinebits.hub import Hub, open_hub, open_worker
from tests.integration.cli.command import python
from tests.integration.report.stalling import STALLED

from alpinehub.app import app
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.report.job import RENDER, due_reports, read_report, render, send_report
from alpinehub.settings import HubSettings
from cordata.pool import SyncClient
from cordata.registry import JobTask
from cordata.services.job import JobResult, run_job
from cordata.testing import open_app

DAY = "2024-01-02"
TO = '[alpinehub]\nreport_to = ["agency@example.com"]\n'


@asynccontextmanager
async def hub_with(folder: Path, pool: Path | None = None) -> AsyncIterator[Hub]:
    """A hub with one request, whose report somebody wants."""
    folder.mkdir(exist_ok=True)
    async with open_hub(folder, pool) as hub:
        settings = {"alpinehub": HubSettings(report_to=("agency@example.com",))}
        hub.ctx = replace(hub.ctx, settings=settings)
        hub.add(1, "a1")
        yield hub


async def report(hub: Hub, folder: Path) -> JobResult:
    task = JobTask(name="daily-report", run=send_report, due=due_reports, claim_timeout_s=60)
    return await run_job(hub.ctx, task, scope="H1", period=DAY)


def the_mail(hub: Hub) -> str:
    """HTML of the only one."""
    [mail] = hub.db.execute("SELECT * FROM mail")
    assert "Eingegangen: 1" in mail["text"]
    return str(mail["html"])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_job_has_the_pool_render_and_imports_no_templates(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "state"):
        pass
    with running(tmp_path, app="alpinehub.app:app", settings=TO) as path:
        job = await asyncio.to_thread(
            python,
            *("-X", "importtime", "-m", "cordata", "job", "daily-report", "--scope", "H1"),
            *("--period", DAY, "--config", str(tmp_path / "cordata.toml")),
        )
        assert job.returncode == 0, job.stderr
        assert "cordata.pool.client.client" in job.stderr
        assert "jinja2" not in job.stderr and "WARNING" not in job.stderr
        with SyncClient(path) as pool:
            workers = pool.status()["workers"]
            assert sum(child["calls"] for one in workers for child in one["children"]) == 1
    async with open_worker(tmp_path / "state") as hub:
        assert the_mail(hub).startswith("<!DOCTYPE html>")


async def test_report_goes_out_once_when_the_child_is_killed_while_it_renders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stalled = tmp_path / "stalled"
    monkeypatch.setenv(STALLED, str(stalled))
    stall = "tests.integration.report.stalled:app"
    with running(tmp_path, app=stall) as path:
        async with hub_with(tmp_path / "hub", path) as hub:
            job = asyncio.ensure_future(report(hub, tmp_path))
            deadline = time.monotonic() + 60.0
            while not (  # noqa: ASYNC110 - another process writes
                stalled.exists() or job.done() or time.monotonic() > deadline
            ):
                await asyncio.sleep(0.01)
            os.kill(int(stalled.read_text()), signal.SIGKILL)
            assert len((await job).ran) == 1
            assert the_mail(hub).startswith("<!DOCTYPE html>")
            assert warnings(caplog) == []
        with SyncClient(path) as pool:
            assert sum(worker["crashed"] for worker in pool.status()["workers"]) == 1


async def test_report_goes_out_with_a_warning_when_there_is_no_pool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hub_with(tmp_path / "hub", tmp_path / "pool") as hub:
        figures = await read_report(hub.ctx, "H1", DAY)
        begun = time.monotonic()
        await render(hub.ctx, figures, timeout_s=0.3)
        assert time.monotonic() - begun >= 0.3
        async with asyncio.timeout(60):  # it is not waited for again
            await render(hub.ctx, figures, timeout_s=600.0)
        assert len((await report(hub, tmp_path)).ran) == 1
        assert the_mail(hub).startswith("<!DOCTYPE html>")
    text = f"daily report of {DAY} for hotel H1: the pool failed (unavailable), rendering in"
    assert warnings(caplog) == [f"{text} this process"] * 3


async def test_report_goes_out_with_a_warning_when_every_child_dies_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_app(app, config={"alpinehub": {"report_to": ["a@example.com"]}}) as harness:
        await add_hotel(harness.ctx.store, NewHotel(code="H1", name="Hotel"))
        harness.pool_crashes(RENDER, times=4)
        done = await harness.run_job("daily-report", scope="H1", period=DAY)
        assert len(done.ran) == 1
        assert len(await harness.mails()) == 1
    assert [text.split(": ")[1] for text in warnings(caplog)] == [
        "the pool failed (crashed), rendering in this process"
    ]


async def test_report_goes_out_with_a_warning_when_the_pool_does_not_know_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As that of another application, or of an older version."""
    with running(tmp_path, app="tests.contract.pool.shop:app", workers=1) as path:
        async with hub_with(tmp_path / "hub", path) as hub:
            assert len((await report(hub, tmp_path)).ran) == 1
            assert the_mail(hub).startswith("<!DOCTYPE html>")
    assert ["unknown_command" in text for text in warnings(caplog)] == [True]


def test_modules_of_the_commands_import_neither_store_nor_templates_nor_xml() -> None:
    modules = "alpinehub.report.writing, alpinehub.alpinebits.large"
    imported = set(python("-c", f"import sys, {modules}; print(*sys.modules)").stdout.split())
    assert {"alpinehub.report.figures", "alpinehub.alpinebits.grammar"} <= imported
    heavy = {"jinja2", "lxml", "sqlite3", "asyncio", "cordata.store", "cordata.app", "starlette"}
    assert not heavy & imported
