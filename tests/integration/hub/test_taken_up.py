"""Submissions of Wix, Google Ads and forms: crashes, races and failures while they are stored."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec import structs
from tests.integration.hub.lenient import (
    FORM,
    NOW,
    open_lenient,
    post_form,
    post_google,
    post_wix,
    wix,
)
from tests.integration.hub.material import Hub, open_hub
from tests.raw import raw, until_blocked

from alpinehub import history, intake
from alpinehub.customers.erasure import Reason, erase
from alpinehub.customers.search import find
from alpinehub.hotels import set_hotel_disabled
from alpinehub.inbox import processing
from alpinehub.inbox.actions import change_mapping
from alpinehub.webhooks import interpretation, receive
from cordata import Conflict, StoreUnavailable
from cordata.testing import race

on_each_store = pytest.mark.usefixtures("each_store")
only_postgres = pytest.mark.parametrize("each_store", ["postgres"], indirect=True)


async def map_stay(hub: Hub) -> None:
    """Correct the mapping of Wix, so that a submission without labels can be mapped."""
    fields = {"arrival": ("field:date_picker_a7c8",), "departure": ("field:date_picker_7e65",)}
    await change_mapping(
        hub.ctx.store, "DEMO", "wix", lambda mapping: structs.replace(mapping, fields=fields)
    )


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failing(error: Exception) -> Callable[..., Awaitable[None]]:
    """Stands for a function that raises this."""

    async def fail(*_: object, **__: object) -> None:
        raise error

    return fail


async def post_and_die(directory: Path, when: str, answered: Any) -> None:
    async with open_hub(directory, seed=False, now=NOW) as hub:
        if when == "interpreting":
            interpretation.interpret = die  # type: ignore[assignment]
        elif when == "storing":
            history.add = die  # type: ignore[assignment]
        assert (await post_wix(hub)).status == 200
        answered.set()
        die()


def worker(directory: str, when: str, answered: Any) -> None:
    """A worker that is killed while it interprets, while it stores, or when it has answered."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(post_and_die(Path(directory), when, answered))


@pytest.mark.parametrize("when", ["interpreting", "storing", "answered"])
@on_each_store
async def test_submission_is_stored_whole_or_not_at_all_when_its_worker_is_killed(
    tmp_path: Path, when: str
) -> None:
    async with open_lenient(tmp_path) as hub:
        context = multiprocessing.get_context("forkserver")  # which imports the hub once
        context.set_forkserver_preload(["tests.integration.hub.material"])
        answered = context.Event()
        process = context.Process(target=worker, args=(str(tmp_path), when, answered))
        process.start()
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == -signal.SIGKILL
        assert answered.is_set() == (when == "answered")
        count = int(answered.is_set())
        assert await hub.one("SELECT count(*) FROM inbox WHERE state = 'mapped'") == count
        assert await hub.one("SELECT count(*) FROM inbox") == count
        assert await hub.one("SELECT count(*) FROM reservation") == count
        assert await hub.one("SELECT count(*) FROM delivery") == count
        assert (await post_wix(hub)).status == 200
        assert await hub.one("SELECT count(*) FROM reservation") == 1


@pytest.mark.parametrize("broken", ["interpret_by", "store_in_unit"])
@on_each_store
async def test_submission_waits_for_a_person_when_the_hub_has_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    async with open_lenient(tmp_path) as hub:

        def wrong(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError("eva@example.com")

        with monkeypatch.context() as patched:
            patched.setattr(receive, broken, wrong)
            assert (await post_wix(hub)).status == 200
            assert (await post_form(hub)).status == 200
            assert (await post_google(hub)).status == 200
        rows = await hub.rows("SELECT state, error FROM inbox ORDER BY id")
        assert [(row["state"], row["error"]) for row in rows] == [("review", "hub_error")] * 3
        assert await hub.one("SELECT count(*) FROM reservation") == 0
        told = [r for r in caplog.records if r.levelno > logging.WARNING]
        assert {r.__dict__["ALERT"] for r in told} == {"inbox-failed"} and len(told) == 3
        assert "source wix of hotel DEMO" in told[0].getMessage()
        assert all("eva@" not in r.getMessage() for r in told)
        for number in (1, 2, 3):
            await processing.settle(hub.ctx, number)
        assert await hub.one("SELECT count(*) FROM reservation") == 3


async def test_submission_is_to_be_sent_again_when_the_store_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lenient(tmp_path) as hub:
        with monkeypatch.context() as patched:
            patched.setattr(receive, "store_in_unit", failing(StoreUnavailable("held too long")))
            answer = await post_wix(hub)
        assert answer.status == 503 and b"retry-after" in answer.headers
        assert await hub.one("SELECT count(*) FROM inbox") == 0
        assert (await post_wix(hub)).status == 200
        assert await hub.one("SELECT count(*) FROM reservation") == 1


@on_each_store
async def test_submission_waits_for_a_person_when_a_constraint_refuses_it_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lenient(tmp_path) as hub:
        with monkeypatch.context() as patched:
            patched.setattr(receive, "store_in_unit", failing(Conflict("no rule of the hub")))
            assert (await post_wix(hub)).status == 200
            assert (await post_form(hub)).status == 200
        rows = await hub.rows("SELECT state, error FROM inbox")
        assert [(row["state"], row["error"]) for row in rows] == [("review", "hub_error")] * 2


@pytest.mark.parametrize(
    "error", [StoreUnavailable("somebody else held it"), ZeroDivisionError("eva@example.com")]
)
async def test_submission_is_accepted_when_the_shape_of_its_form_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with open_lenient(tmp_path) as hub:
        with monkeypatch.context() as patched:
            patched.setattr("alpinehub.webhooks.form_shapes._add", failing(error))
            assert (await post_wix(hub)).status == 200
        assert await hub.one("SELECT count(*) FROM reservation") == 1
        assert await hub.one("SELECT count(*) FROM form") == 0
        assert (await post_wix(hub)).status == 200
        assert await hub.one("SELECT count(*) FROM form") == 1


@on_each_store
async def test_same_submission_sent_at_once_to_two_workers_is_one_request(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False, now=NOW) as other:
        posts = [
            post(one) for _ in range(3) for one in (hub, other) for post in (post_wix, post_form)
        ]
        assert {answer.status for answer in await asyncio.gather(*posts)} == {200}
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
        assert await hub.one("SELECT count(*) FROM hour_change WHERE kind = 'duplicate'") == 10


@on_each_store
async def test_form_sent_twice_is_one_request_though_the_later_one_is_stored_first_or_at_once(
    tmp_path: Path,
) -> None:
    """Also when the two are in neighbouring time slots, from which their ids are made."""
    before, after = (
        datetime(2027, 1, 2, 12, 10, tzinfo=UTC) + timedelta(seconds=n) for n in (-1, 1)
    )
    async with (
        open_lenient(tmp_path, now=before, form_burst=100) as hub,
        open_hub(tmp_path, seed=False, now=after, form_burst=100) as other,
    ):
        for one in (other, hub):
            await post_form(one, FORM | {"message": "form 0"})
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "duplicate"]
        for number in range(1, 10):
            form = FORM | {"message": f"form {number}"}
            await asyncio.gather(post_form(hub, form), post_form(other, form))
        assert await hub.one("SELECT count(*) FROM reservation") == 10
        assert await hub.one("SELECT count(*) FROM inbox WHERE outcome = 'duplicate'") == 10


@on_each_store
@pytest.mark.parametrize(("minutes", "outcomes"), [(9, ["new", "duplicate"]), (21, ["new", "new"])])
async def test_form_sent_again_is_another_request_after_two_slots(
    tmp_path: Path, minutes: int, outcomes: list[str]
) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_form(hub, FORM)
        hub.harness.advance(minutes=minutes)
        await post_form(hub, FORM)
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == outcomes


@on_each_store
async def test_form_sent_twice_is_one_request_however_long_it_is_in_review(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        form = {
            {"arrival": "from_day", "departure": "to_day"}.get(name, name): v
            for name, v in FORM.items()
        }
        for _ in range(2):
            await post_form(hub, form)
        fields = {"arrival": ("field:from_day",), "departure": ("field:to_day",)}
        await change_mapping(
            hub.ctx.store, "DEMO", "form", lambda mapping: structs.replace(mapping, fields=fields)
        )
        for number in (1, 2):
            await processing.settle(hub.ctx, number)
            hub.harness.advance(hours=1)
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "duplicate"]


@on_each_store
@only_postgres
async def test_form_waits_for_another_unit_with_its_content(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        await post_form(hub, FORM)
        [row] = await hub.rows(
            "SELECT r.source_id, v.data AS content FROM reservation r JOIN reservation_version v"
            " ON v.reservation_id = r.id"
        )
        async with other.ctx.store.transaction() as tx:
            await tx.fetch_one("inbox_lock_content", **row)
            task = asyncio.create_task(post_form(hub, FORM))
            await until_blocked(other.ctx.store)
        assert (await task).status == 200


@on_each_store
@only_postgres
async def test_submission_sent_again_is_stored_anew_when_its_request_is_erased_before_the_write(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        await post_wix(hub, wix(submissionId="s-1"))
        async with other.ctx.store.transaction() as tx:
            await raw(tx, "UPDATE reservation SET erased_at = 1")
            await raw(tx, "UPDATE reservation_version SET content_hash = 'x'")  # as an erasure
            task = asyncio.create_task(post_wix(hub, wix(submissionId="s-1")))
            await until_blocked(other.ctx.store)
        assert (await task).status == 200
        rows = await hub.rows("SELECT outcome FROM inbox ORDER BY id")
        assert [row["outcome"] for row in rows] == ["new", "changed"]


@on_each_store
async def test_unit_that_stores_a_form_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    async def counted(*args: Any, **options: Any) -> Any:
        runs.append(1)
        return await intake.store_in_unit(*args, **options)

    monkeypatch.setattr(receive, "store_in_unit", counted)
    async with open_lenient(tmp_path) as hub:
        posts = [post_form(hub, FORM | {"email": f"g{number}@example.com"}) for number in range(9)]
        assert {answer.status for answer in await asyncio.gather(*posts)} == {200}
        assert await hub.one("SELECT count(*) FROM reservation") == len(runs) == 9
        known = FORM | {"email": "g0@example.com"}
        posts = [post_form(hub, known | {"message": f"form {number}"}) for number in range(9)]
        assert {answer.status for answer in await asyncio.gather(*posts)} == {200}
        assert await hub.one("SELECT count(*) FROM reservation") == len(runs) == 18


@on_each_store
async def test_submission_sent_again_while_its_request_is_erased_is_a_new_one(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False, now=NOW) as other:
        for one in (hub, other):  # both know the sources
            await post_wix(one, wix(submissionId="s-1"))
        people = await find(hub.ctx.store, email="eva@example.com")
        reason = Reason(by="test", force=True)
        _, again = await race(
            erase(hub.ctx.store, people, reason), post_wix(other, wix(submissionId="s-1"))
        )
        assert again.status == 200
        outcomes = [row["outcome"] for row in await hub.rows("SELECT outcome FROM inbox")]
        assert outcomes == ["new", "duplicate", "changed"]
        assert len(await find(hub.ctx.store, email="eva@example.com")) == 1
        assert await hub.one("SELECT count(*) FROM inbox WHERE length(body) > 0") == 1


@on_each_store
async def test_submission_that_two_operators_reprocess_at_once_is_one_request(
    tmp_path: Path,
) -> None:
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        for number in range(10):
            await post_wix(hub, wix(submissionId=f"s-{number}", submissions=[]))
        assert await hub.one("SELECT count(*) FROM inbox WHERE state = 'review'") == 10
        await map_stay(hub)
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
async def test_submission_of_a_disabled_hotel_can_be_reprocessed(tmp_path: Path) -> None:
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub, wix(field__date_picker_a7c8="2026-12-24", submissions=[]))
        assert await hub.one("SELECT state FROM inbox") == "review"
        await set_hotel_disabled(hub.ctx.store, "DEMO", True)
        await map_stay(hub)
        await processing.settle(hub.ctx, 1, accepted_by="operator")
        assert await hub.one("SELECT state FROM inbox") == "mapped"


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
async def test_source_goes_on_while_a_process_that_settles_is_stopped(
    tmp_path: Path, each_store: object
) -> None:
    """SQLite has one writer: there the others wait for it."""
    async with open_lenient(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:
        await post_form(hub, FORM | {"arrival": ""})
        assert await hub.one("SELECT state FROM inbox") == "review"
        async with other.ctx.transaction() as stopped:
            await stopped.fetch_one("inbox_lock", id=1)
            for number in (2, 3):
                await post_form(hub, FORM | {"message": f"form {number}"})
            assert await hub.one("SELECT count(*) FROM reservation") == 2
