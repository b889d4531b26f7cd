"""Between the commit of the inbox row and its interpretation: crashes, races, failures."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from datetime import timedelta
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

from alpinehub.hotels import set_hotel_disabled
from alpinehub.inbox import processing
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
        context = multiprocessing.get_context("forkserver")  # which imports the hub once
        context.set_forkserver_preload(["tests.integration.hub.material"])
        answered = context.Event()
        process = context.Process(target=worker, args=(str(tmp_path), answered))
        process.start()
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == -signal.SIGKILL and answered.is_set()
        assert await hub.one("SELECT state FROM inbox") == "received"
        assert await hub.one("SELECT count(*) FROM reservation") == 0
        hub.harness.advance(seconds=60)  # the other one's clock was ahead
        await hub.handle_events()
        assert await hub.one("SELECT state FROM inbox") == "mapped"
        assert await hub.one("SELECT count(*) FROM reservation") == 1


@on_each_store
async def test_submission_waits_for_a_replay_when_its_interpretation_kills_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No periodic task interprets it: it would kill the primary, and the next one, without end."""
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)

        async def die_too_often(tx: Tx) -> None:
            await raw(tx, "UPDATE message SET state = 'dead', dead_at = 1")

        def deadly(*_: Any, **options: Any) -> Any:
            raise SystemExit("interpreted again")

        await hub.ctx.run(die_too_often)
        right = interpretation.interpret
        monkeypatch.setattr(processing, "interpret", deadly)
        hub.harness.advance(hours=1)
        for task in hub.harness.app.periodics:
            await hub.harness.run_periodic(task.name)
        assert await hub.one("SELECT state FROM inbox") == "received"
        monkeypatch.setattr(processing, "interpret", right)
        assert await hub.harness.replay_dead_letters() == 1
        await hub.handle_events()
        assert await hub.one("SELECT state FROM inbox") == "mapped"


async def test_submission_waits_for_a_person_when_interpretation_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await post_wix(hub, wix(submissionId="s-2"))
        right = interpretation.interpret

        def wrong(received: Any, *more: Any, **options: Any) -> Any:
            if b"s-2" in received.body:
                raise ZeroDivisionError("eva@example.com")
            return right(received, *more, **options)

        monkeypatch.setattr(processing, "interpret", wrong)
        await hub.harness.drain(raising=False)
        assert await hub.one("SELECT state FROM inbox WHERE id = 2") == "received"  # tried again
        await hub.harness.drain(raising=False, within=timedelta(days=1))
        rows = await hub.rows("SELECT state, error FROM inbox ORDER BY id")
        assert [(row["state"], row["error"]) for row in rows] == [
            ("mapped", None),
            ("review", "handler_failed"),
        ]
        assert await hub.one("SELECT count(*) FROM message") == 0
        [told] = (r for r in caplog.records if r.levelno > logging.WARNING)
        assert told.__dict__["ALERT"] == "inbox-failed" and "submission 2 " in told.getMessage()
        monkeypatch.setattr(processing, "interpret", right)
        await processing.settle(hub.ctx, 2)
        assert await hub.one("SELECT state FROM inbox WHERE id = 2") == "mapped"


async def test_submission_is_interpreted_by_a_later_attempt_when_it_failed_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await post_wix(hub, wix(submissionId="s-2"))
        right = interpretation.interpret

        def busy(received: Any, *more: Any, **options: Any) -> Any:
            if b"s-2" not in received.body:
                monkeypatch.setattr(processing, "interpret", right)
                raise TransactionTimeout("somebody else held it for too long")
            return right(received, *more, **options)

        async def states() -> list[str]:
            return [row["state"] for row in await hub.rows("SELECT state FROM inbox ORDER BY id")]

        monkeypatch.setattr(processing, "interpret", busy)
        await hub.harness.drain(raising=False)
        assert await states() == ["received", "mapped"]
        await hub.harness.drain(within=timedelta(hours=1))
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
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub)
        await set_hotel_disabled(hub.ctx.store, "DEMO", True)
        await hub.handle_events()
        assert await hub.one("SELECT state FROM inbox") == "mapped"
