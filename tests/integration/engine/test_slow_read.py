"""To the runtime's own services a read that takes too long is a store that does not answer: they
pause and go on, and no role ends. Here each kind of read takes too long once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

from tests.integration.engine.engine import build, running
from tests.integration.engine.parts import CHAINS, known, opened, publish, until
from tests.integration.engine.slow import SlowAtFirst
from tests.integration.eventstore import ledger
from tests.integration.primary.primary import Primary
from tests.integration.primary.primary import build as build_primary
from tests.integration.primary.primary import running as leading

from cordata.app import App
from cordata.broker import ClaimLimit, Queue
from cordata.config.sections import MailConfig
from cordata.context import BackfillContext, Event, EventContext
from cordata.eventstore import StoredEvent
from cordata.process import ProcessLease, this_process
from cordata.services.schema import SchemaGate
from cordata.store import Store
from cordata.subscription import SubscriptionContext
from cordata.systemd import Notifier


async def test_worker_handles_all_when_each_read_took_too_long_once(tmp_path: Path) -> None:
    app, handled = App("t"), list[str]()

    @app.on("thing.done", retries=1)
    async def take(event: Event, ctx: EventContext) -> None:
        handled.append(event.id)

    async with opened(tmp_path) as store:
        await known(store, app)
        ids = await publish(store, 2)
        dead = replace(this_process("dead"), start=1)  # its number is another's now
        await ProcessLease(store, dead, lease_s=60.0).renew()
        await Queue(store, owner=dead.id, retries={}).settle_and_claim(
            [], {"t.take": ClaimLimit(1, 1)}
        )
        slow = SlowAtFirst(store)
        engine = build(cast(Store, slow), tmp_path, app)
        async with asyncio.timeout(60), running(engine):
            await engine.idle_exit.run(asyncio.Event())
    assert sorted(handled) == sorted(ids)
    assert slow.stopped >= {"Queue._only_claimable", "IdleExitService.run_once", "all_processes"}


async def test_subscriptions_handle_all_when_each_read_took_too_long_once(tmp_path: Path) -> None:
    app, seen = App("t"), list[int]()

    @app.subscribe("account", partitions=2)
    async def note(event: StoredEvent, ctx: SubscriptionContext) -> None:
        seen.append(event.version)

    async with ledger.opened(tmp_path) as store:
        await ledger.deposit(store, "account-1", 1, 2, 3)
        slow = SlowAtFirst(store)
        async with ledger.running(cast(Store, slow), tmp_path, app):
            await until(lambda: len(seen) >= 3)
            await until(lambda: slow.stopped >= {"Partitions.read_table", "_mark", "read_page"})
    assert seen == [1, 2, 3]


async def test_worker_waits_for_the_schema_when_looking_took_too_long_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        gate = SchemaGate(cast(Store, SlowAtFirst(store)), CHAINS, Notifier())
        assert await gate.run_once() == "waiting for the store (a read took longer than 30 s)"
        assert await gate.run_once() == ""


async def test_primary_stands_by_and_leads_when_each_read_took_too_long_once(
    tmp_path: Path,
) -> None:
    app, stepped = App("p"), asyncio.Event()

    @app.backfill("fill")
    async def fill(ctx: BackfillContext, cursor: str | None) -> str | None:
        stepped.set()
        return None

    async with opened(tmp_path) as store:
        other = store.lease(holder="other")
        assert await other.try_acquire() is not None
        slow = SlowAtFirst(store)
        primary = _primary(cast(Store, slow), tmp_path, app)
        async with asyncio.timeout(60), leading(primary):
            await until(lambda: primary.lease.status() == "standby")
            await other.release()
            await stepped.wait()
            each = {
                "MailService._next",
                "is_takeover_requested",
                "pending",
                "_page",
                "stored_progress",
            }
            await until(lambda: slow.stopped >= each)
            assert primary.lease.status() == "primary, term 2"


def _primary(store: Store, state: Path, app: App) -> Primary:
    return build_primary(store, state, app, mail=MailConfig(host="127.0.0.1", port=9))
