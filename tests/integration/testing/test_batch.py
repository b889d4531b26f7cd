"""In a test, a batched unit that does what no batch can do is an error, on either store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cordata import App, Event, EventContext, Tx
from cordata.errors import CordataError
from cordata.testing import async_test, open_app


async def executes(tx: Tx) -> None:
    await tx.execute("mail.add")


async def reads_after_a_write(tx: Tx) -> None:
    await tx.publish("order.made", {})
    await tx.fetch_one("queue.has_handled", event_id="1", group="g")


async def locks(tx: Tx) -> None:
    await tx.fetch_all("queue.has_handled", lock=True, event_id="1", group="g")


@pytest.mark.parametrize(
    ("unit", "told"),
    [(executes, "waits for a result"), (reads_after_a_write, "reads after"), (locks, "locks")],
)
@async_test
async def test_batched_unit_is_refused_when_no_batch_could_run_it(
    tmp_path: Path, unit: Callable[[Tx], Awaitable[None]], told: str
) -> None:
    async with open_app(App("shop"), directory=tmp_path) as harness:
        with pytest.raises(CordataError, match=told):
            await harness.ctx.run(unit, batch=True)


@async_test
async def test_effect_is_stored_when_a_handler_is_batched(tmp_path: Path) -> None:
    app = App("shop")
    done: list[str] = []

    @app.on("order.made", batch=True)
    async def pack(event: Event, ctx: EventContext) -> None:
        await ctx.run(lambda tx: tx.publish("order.packed", {"n": 1}))
        done.append(event.id)

    async with open_app(app, directory=tmp_path) as harness:
        made = await harness.publish("order.made", {})
        await harness.drain()
        assert done == [made] and not harness.failures
