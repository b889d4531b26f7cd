"""Between the commit of the inbox row and its interpretation: crashes, races, failures."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.hub.lenient import (
    NOW,
    WIX,
    open_lenient,
    post_form,
    post_wix,
    wix,
)
from tests.integration.hub.material import open_hub
from tests.raw import raw

from alpinehub.inbox import processing
from alpinehub.inbox.processing import process_stale
from alpinehub.webhooks import interpretation
from cordata import Tx
from cordata.errors import TransactionTimeout

on_each_store = pytest.mark.usefixtures("each_store")


async def post_and_die(directory: Path, answered: Any) -> None:
    """A worker that is killed when it has answered."""
    async with open_hub(directory, seed=False, now=NOW) as hub:
        assert (await post_wix(hub)).status == 200
        answered.set()
        os.kill(os.getpid(), signal.SIGKILL)


def worker(directory: str, answered: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(post_and_die(Path(directory), answered))


@on_each_store
async def test_submission_is_a_request_when_its_worker_was_killed_after_the_answer(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub:
        context = multiprocessing.get_context("spawn")
        answered = context.Event()
        process = context.Process(target=worker, args=(str(tmp_path), answered))
        process.start()
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == -signal.SIGKILL and answered.is_set()
        assert await hub.one("SELECT state FROM inbox") == "received"
        assert await hub.one("SELECT count(*) FROM reservation") == 0
        assert hub.harness is not None
        hub.harness.advance(seconds=60)  # the other one's clock was ahead
        await hub.handle_events()
        assert await hub.one("SELECT state FROM inbox") == "mapped"
        assert await hub.one("SELECT count(*) FROM reservation") == 1


@on_each_store
async def test_submission_is_taken_up_when_no_event_ever_comes_for_it(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        assert hub.harness is not None
        await post_wix(hub)

        async def lose(tx: Tx) -> None:
            await raw(tx, "DELETE FROM message")

        await hub.ctx.run(lose)
        await process_stale(hub.ctx)
        assert await hub.one("SELECT state FROM inbox") == "received", "its event may still come"
        hub.harness.advance(seconds=601)
        await process_stale(hub.ctx)
        assert await hub.one("SELECT state FROM inbox") == "mapped"
        await process_stale(hub.ctx)
        assert await hub.one("SELECT count(*) FROM reservation") == 1


async def test_submission_waits_for_a_person_when_interpretation_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        assert hub.harness is not None
        await post_wix(hub)
        await post_wix(hub, wix(submissionId="s-2"))
        right = interpretation.interpret

        def wrong(received: Any, *more: Any, **options: Any) -> Any:
            if b"s-2" in received.body:
                raise ZeroDivisionError("eva@example.com")
            return right(received, *more, **options)

        monkeypatch.setattr(processing, "interpret", wrong)
        hub.harness.advance(seconds=601)
        await process_stale(hub.ctx)
        rows = await hub.rows("SELECT state, error FROM inbox ORDER BY id")
        assert [(row["state"], row["error"]) for row in rows] == [
            ("mapped", None),
            ("review", "handler_failed"),
        ]
        details, told = (r for r in caplog.records if r.levelno >= logging.WARNING)
        assert details.levelno == logging.WARNING and details.exc_info  # one alert, not two
        assert told.__dict__["ALERT"] == "inbox-failed" and "submission 2 " in told.getMessage()
        monkeypatch.setattr(processing, "interpret", right)
        assert await processing.settle(hub.ctx, 2) == "mapped"


async def test_submission_is_taken_up_later_when_it_failed_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lenient(tmp_path) as hub:
        assert hub.harness is not None
        await post_wix(hub)
        await post_wix(hub, wix(submissionId="s-2"))
        right = interpretation.interpret

        def busy(received: Any, *more: Any, **options: Any) -> Any:
            if b"s-2" not in received.body:
                raise TransactionTimeout("somebody else held it for too long")
            return right(received, *more, **options)

        async def states() -> list[str]:
            return [row["state"] for row in await hub.rows("SELECT state FROM inbox ORDER BY id")]

        monkeypatch.setattr(processing, "interpret", busy)
        hub.harness.advance(seconds=601)
        await process_stale(hub.ctx)
        assert await states() == ["received", "mapped"]
        monkeypatch.setattr(processing, "interpret", right)
        await process_stale(hub.ctx)
        assert await states() == ["mapped", "mapped"]


@on_each_store
async def test_submission_that_two_workers_interpret_at_once_is_one_request(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        for number in range(10):
            await post_wix(hub, wix(submissionId=f"s-{number}"))
        await asyncio.gather(
            *(processing.settle(one.ctx, n) for n in range(1, 11) for one in (hub, other))
        )
        assert await hub.one("SELECT count(*) FROM reservation") == 10
        assert await hub.one("SELECT count(*) FROM reservation_version") == 10
        assert await hub.one("SELECT count(*) FROM inbox WHERE state = 'mapped'") == 10
        assert (
            await hub.one("SELECT count(*) FROM reservation_history WHERE event = 'mapped'") == 10
        )


@on_each_store
async def test_same_submission_sent_twice_at_once_is_one_request(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        for _ in range(6):
            assert (await post_wix(hub, WIX)).status == 200
            assert (await post_form(hub)).status == 200
        await asyncio.gather(*(processing.settle((hub, other)[n % 2].ctx, n) for n in range(1, 13)))
        rows = await hub.rows(
            "SELECT source_id, outcome, count(*) AS n FROM inbox GROUP BY source_id, outcome"
        )
        assert sorted((row["outcome"], row["n"]) for row in rows) == [
            ("duplicate", 5),
            ("duplicate", 5),
            ("new", 1),
            ("new", 1),
        ]
        assert await hub.one("SELECT count(*) FROM reservation") == 2


@on_each_store
async def test_submission_of_a_disabled_source_is_not_lost(tmp_path: Path) -> None:
    from alpinehub.hotels import set_hotel_disabled

    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await set_hotel_disabled(hub.ctx.store, "DEMO", True)
        await hub.handle_events()
        assert await hub.one("SELECT state FROM inbox") == "mapped"
