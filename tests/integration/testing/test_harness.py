"""cordata.testing: an application runs inside a test, and its time is the test's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cordata import (
    App,
    BackfillContext,
    Context,
    Event,
    EventContext,
    PermanentError,
    StoredEvent,
    SubscriptionContext,
    from_us,
)
from cordata.errors import WrongExpectedVersion
from cordata.eventstore.inspection import Subscriptions
from cordata.testing import Harness, async_test, open_app

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 7, 1, 8, tzinfo=UTC)


class Shop:
    """An App with one of everything; `fails` is how often packing fails yet."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.fails = 0
        self.packed: list[tuple[int, datetime]] = []
        self.log: list[str] = []
        self._handlers()
        self._tasks()

    def _handlers(self) -> None:
        @self.app.on("order.made", retries=3)
        async def pack(event: Event, ctx: EventContext) -> None:
            if self.fails:
                self.fails -= 1
                raise ValueError("no boxes left")
            self.packed.append((event.payload["n"], from_us(ctx.now_us())))
            async with ctx.transaction() as tx:
                await tx.publish("order.packed", {"n": event.payload["n"]}, key=event.key)

        @self.app.on("order.packed")
        async def thank(event: Event, ctx: EventContext) -> None:
            to = ctx.settings["shop"].desk
            await ctx.run(
                lambda tx: tx.send_mail(to=[to], subject="Packed", text=str(event.payload))
            )

        @self.app.on("order.refused")
        async def refuse(event: Event, ctx: EventContext) -> None:
            raise PermanentError("never")

    def _tasks(self) -> None:
        @self.app.settings("shop")
        @dataclass(frozen=True, slots=True, kw_only=True)
        class Settings:
            desk: str = "desk@example.com"

        @self.app.startup
        async def begin(ctx: Context) -> None:
            self.log.append("startup")

        @self.app.every(seconds=60)
        async def count(ctx: Context) -> None:
            self.log.append(f"count {from_us(ctx.now_us()):%H:%M}")

        @self.app.backfill("numbers", batch=10)
        async def numbers(ctx: BackfillContext, cursor: str | None) -> str | None:
            step = int(cursor or 0) + 1
            self.log.append(f"step {step} of {ctx.batch}")
            return str(step) if step < 3 else None

        @self.app.job("tally")
        async def tally(ctx: Context, scope: str, day: str) -> None:
            if day == "2026-07-03":
                raise RuntimeError("holiday")
            self.log.append(f"tally {day}")

        async def due(ctx: Context, now: datetime) -> Iterable[tuple[str, str]]:
            return [("north", f"{now:%Y-%m}")]

        @self.app.job("monthly", due=due)
        async def monthly(ctx: Context, scope: str, month: str) -> None:
            self.log.append(f"{scope} {month}")


async def test_event_is_handled_with_what_follows_from_it(tmp_path: Path) -> None:
    shop = Shop()
    settings = {"shop": {"desk": "other@example.com"}}
    async with open_app(shop.app, now=NOW, config=settings, directory=tmp_path / "a/b") as harness:
        event_id = await harness.publish("order.made", {"n": 1}, key="k")
        assert [entry.state for entry in await harness.outbox()] == ["pending"]
        assert await harness.drain() == 2
        assert await harness.drain() == 0
        first, second = await harness.outbox()
        assert (first.id, first.type, first.state) == (event_id, "order.made", "done")
        assert (second.payload, second.key, second.created_at) == ({"n": 1}, "k", NOW)
        assert [entry.id for entry in await harness.outbox("order.packed")] == [second.id]
        [mail] = await harness.mails()
        assert (mail.to, mail.subject) == (["other@example.com"], "Packed")
        assert mail.created_at == NOW
    assert (tmp_path / "a/b/cordata.db").exists()


async def test_handler_error_is_raised_and_tried_again_when_the_time_has_come() -> None:
    shop = Shop()
    shop.fails = 2
    async with open_app(shop.app, now=NOW) as harness:
        await harness.publish("order.made", {"n": 1})
        with pytest.raises(ValueError, match="no boxes left") as caught:
            await harness.drain()
        assert caught.value.__notes__[0].startswith("in shop.pack, attempt 1 at event ")
        assert caught.traceback[-1].name == "pack"
        assert await harness.drain() == 0  # not due
        harness.advance(hours=1)
        with pytest.raises(ValueError):
            await harness.drain()
        assert harness.advance(hours=1) == NOW + timedelta(hours=2)
        assert await harness.drain() == 2
        assert shop.packed == [(1, NOW + timedelta(hours=2))]
        assert [(one.group, one.event.attempt) for one in harness.failures] == [
            ("shop.pack", 1),
            ("shop.pack", 2),
        ]


async def test_drain_goes_through_time_and_ends_in_the_dead_letter() -> None:
    shop = Shop()
    shop.fails = 9
    async with open_app(shop.app, now=NOW) as harness:
        await harness.publish("order.made", {"n": 1})
        assert await harness.drain(within=timedelta(days=1), raising=False) == 4
        assert harness.now == NOW + timedelta(days=1)
        [letter] = await harness.dead_letters()
        assert (letter.group, letter.attempts, letter.payload) == ("shop.pack", 4, {"n": 1})
        assert letter.error == "ValueError: no boxes left"
        assert NOW < letter.dead_at < NOW + timedelta(hours=1)
        assert await harness.dead_letters("shop.thank") == []
        shop.fails = 0
        assert await harness.replay_dead_letters() == 1
        assert await harness.drain() == 2
        assert await harness.dead_letters() == []


async def test_event_waits_for_its_time_and_permanent_errors_for_nothing() -> None:
    shop = Shop()
    async with open_app(shop.app, now=NOW) as harness:
        await harness.publish("order.made", {"n": 1}, delay_s=600.0)
        assert await harness.drain() == 0
        harness.move_to(NOW + timedelta(minutes=10))
        assert await harness.drain() == 2
        await harness.publish("order.refused", {})
        with pytest.raises(PermanentError):
            await harness.drain()
        assert [one.group for one in await harness.dead_letters()] == ["shop.refuse"]
        with pytest.raises(ValueError, match="does not go back"):
            harness.move_to(NOW)


async def test_other_messages_wait_for_the_next_drain_when_one_fails() -> None:
    shop = Shop()
    shop.fails = 1
    async with open_app(shop.app, now=NOW) as harness:
        for n in range(3):
            await harness.publish("order.made", {"n": n})
        with pytest.raises(ValueError):
            await harness.drain()
        assert await harness.drain() == 4
        assert await harness.drain(within=timedelta(hours=1)) == 2
        assert [n for n, _ in shop.packed] == [1, 2, 0]


async def test_order_of_a_key_is_kept_though_its_first_one_fails() -> None:
    app, fails, done = App("shop"), True, list[tuple[str, int]]()

    @app.on("order.made", key=True, group="first")
    async def first(event: Event, ctx: EventContext) -> None:
        if fails and event.payload["n"] == 0:
            raise ValueError("not yet")
        done.append((event.key or "", event.payload["n"]))

    @app.on("order.made", key=True, group="second")
    async def second(event: Event, ctx: EventContext) -> None:
        done.append(("second", event.payload["n"]))

    async with open_app(app, now=NOW) as harness:
        for n in range(4):
            await harness.publish("order.made", {"n": n}, key="ab"[n % 2])
        with pytest.raises(ValueError):  # what the second group had claimed is given back
            await harness.drain()
        assert await harness.drain() == 6
        assert [one for one in done if one[0] != "second"] == [("b", 1), ("b", 3)]
        fails = False
        assert await harness.drain(within=timedelta(hours=1)) == 2
        assert done[-2:] == [("a", 0), ("a", 2)]
        assert sorted(n for name, n in done if name == "second") == [0, 1, 2, 3]


async def test_handler_that_takes_too_long_is_a_timeout() -> None:
    app = App("shop")

    @app.on("order.made", timeout_s=0.01)
    async def hang(event: Event, ctx: EventContext) -> None:
        await asyncio.Event().wait()

    async with open_app(app) as harness:
        await harness.publish("order.made", {})
        with pytest.raises(TimeoutError, match=r"shop\.hang took longer than 0\.01 s"):
            await harness.drain()


def with_ledger(on_error: Literal["block", "dead"] = "block") -> tuple[App, list[Any], list[int]]:
    """An App with a subscription; what it handled, and the amounts that it refuses yet."""
    app, handled, refused = App("bank"), list[Any](), list[int]()

    @app.subscribe("account", partitions=4, retries=2, on_error=on_error)
    async def sum_up(event: StoredEvent, ctx: SubscriptionContext) -> None:
        if event.payload["amount"] in refused:
            raise ValueError("refused")
        handled.append((event.stream, event.payload["amount"], from_us(ctx.now_us())))
        if event.payload["amount"] == 100:
            await ctx.run(lambda tx: tx.publish("account.rich", {"stream": event.stream}))

    @app.on("account.rich")
    async def tell(event: Event, ctx: EventContext) -> None:
        handled.append(event.payload["stream"])

    return app, handled, refused


async def test_subscription_handles_each_event_once_in_the_order_of_its_stream() -> None:
    app, handled, _ = with_ledger()
    async with open_app(app, now=NOW) as harness:
        for amount in (1, 2, 100):
            for stream in ("account-a", "account-b", "other-c"):
                await harness.append(stream, "deposited", {"amount": amount})
        assert await harness.drain() == 8  # two of them followed by a message
        of_a = [one[1] for one in handled if one[0] == "account-a"]
        assert of_a == [1, 2, 100]
        assert handled.count("account-a") == handled.count("account-b") == 1
        assert await harness.drain() == 0
        assert [event.version for event in await harness.stream("account-a")] == [1, 2, 3]
        with pytest.raises(WrongExpectedVersion):
            await harness.append("account-a", "deposited", {}, expected=1)
        assert (await harness.subscription("bank.sum_up")).behind == 0
        with pytest.raises(KeyError):
            await harness.subscription("nothing")


async def test_subscription_waits_with_its_stream_for_the_retry_and_is_blocked_in_the_end() -> None:
    app, handled, refused = with_ledger()
    async with open_app(app, now=NOW) as harness:
        refused.append(1)
        for amount in (1, 2):
            await harness.append("account-a", "deposited", {"amount": amount})
        with pytest.raises(ValueError, match="refused") as caught:
            await harness.drain()
        assert caught.value.__notes__ == ["in bank.sum_up, attempt 1 at event account-a/1"]
        assert await harness.drain() == 0  # the second one waits behind the first
        refused.clear()
        assert await harness.drain(within=timedelta(hours=1)) == 2
        assert [one[1] for one in handled] == [1, 2]
        assert NOW < handled[0][2] < NOW + timedelta(minutes=1)
        refused.append(3)
        await harness.append("account-a", "deposited", {"amount": 3})
        assert await harness.drain(within=timedelta(hours=1), raising=False) == 3
        assert (await harness.subscription("bank.sum_up")).state == "blocked"
        refused.clear()
        await Subscriptions(harness.ctx.store).resume("bank.sum_up")
        assert await harness.drain() == 1


async def test_subscription_goes_on_after_a_dead_letter_where_that_is_wanted() -> None:
    app, handled, refused = with_ledger("dead")
    async with open_app(app, now=NOW) as harness:
        refused.append(1)
        for amount in (1, 2):
            await harness.append("account-a", "deposited", {"amount": amount})
        assert await harness.drain(within=timedelta(hours=1), raising=False) == 4
        assert [one[1] for one in handled] == [2]
        status = await harness.subscription("bank.sum_up")
        assert (status.dead, status.state, len(harness.failures)) == (1, "current", 3)


async def test_startup_job_periodic_and_backfill_run_when_they_are_told() -> None:
    shop = Shop()
    async with open_app(shop.app, now=NOW) as harness:
        await harness.run_periodic("count")
        harness.advance(minutes=5)
        await harness.run_periodic("count")
        assert await harness.run_backfill("numbers", steps=1) == 1
        assert await harness.run_backfill("numbers") == 2
        assert await harness.run_backfill("numbers") == 0
        steps = [f"step {n} of 10" for n in (1, 2, 3)]
        assert shop.log == ["startup", "count 08:00", "count 08:05", *steps]
    async with open_app(shop.app, startup=False) as harness:
        assert shop.log.count("startup") == 1
        await harness.run_startup()
    assert shop.log.count("startup") == 2


async def test_backfill_raises_what_its_step_raised() -> None:
    app = App("b")

    @app.backfill("fill")
    async def fill(ctx: BackfillContext, cursor: str | None) -> str | None:
        raise RuntimeError("no rows")

    async with open_app(app) as harness:
        with pytest.raises(RuntimeError, match="no rows"):
            await harness.run_backfill("fill")


async def test_job_runs_each_period_once_at_the_time_of_the_test() -> None:
    shop = Shop()
    async with open_app(shop.app, now=NOW) as harness:
        shop.log.clear()
        result = await harness.run_job("tally")
        assert [run.period for run in result.ran] == ["2026-07-01"]
        assert (await harness.run_job("tally")).ran == []
        harness.advance(days=2)
        with pytest.raises(RuntimeError, match="holiday") as caught:
            await harness.run_job("tally")
        assert caught.value.__notes__ == ["in job tally, scope '', period '2026-07-03'"]
        assert shop.log == ["tally 2026-07-01", "tally 2026-07-02"]
        again = await harness.run_job("tally", scope="", period="2026-07-01", force=True)
        assert len(again.ran) == 1
        assert [run.scope for run in (await harness.run_job("monthly")).ran] == ["north"]
        assert shop.log[-1] == "north 2026-07"


async def book(request: Request) -> JSONResponse:
    ctx: Context = request.state.cordata
    n = (await request.json())["n"]
    if n < 0:
        raise ValueError("less than nothing")
    await ctx.run(lambda tx: tx.publish("order.made", {"n": n}))
    head = {"X-Time": f"{from_us(ctx.now_us()):%H:%M}", "X-Query": request.query_params["q"]}
    return JSONResponse({"n": n, "path": request.url.path}, 201, head)


def with_web(shop: Shop) -> Shop:
    async def lifespan(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            shop.log.append("up")
            await send({"type": message["type"] + ".complete"})
        shop.log.append("down")
        await send({"type": "lifespan.shutdown.complete"})

    shop.app.mount("/shop", Starlette(routes=[Route("/ord er", book, methods=["POST"])]))
    shop.app.mount("/other", lifespan)
    return shop


async def test_request_goes_to_what_is_mounted() -> None:
    shop = with_web(Shop())
    async with open_app(shop.app, now=NOW) as harness:
        assert "up" not in shop.log
        answer = await harness.request("post", "/shop/ord%20er?q=a%26b", json={"n": 7})
        assert (answer.status, answer.json()) == (201, {"n": 7, "path": "/shop/ord er"})
        assert (answer.headers["x-time"], answer.headers["x-query"]) == ("08:00", "a&b")
        assert (await harness.request("GET", "/nowhere")).status == 404
        [entry] = await harness.outbox()
        assert len(entry.headers["request_id"]) == 32
        with pytest.raises(ValueError, match="less than nothing"):
            await harness.request("POST", "/shop/ord%20er", json={"n": -1})
        assert shop.log.count("up") == 1
    assert shop.log[-1] == "down"


async def test_response_may_have_no_headers() -> None:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    shop = Shop()
    shop.app.mount("/bare", serve)
    async with open_app(shop.app, now=NOW) as harness:
        answer = await harness.request("GET", "/bare")
        assert (answer.status, answer.headers, answer.body) == (204, {}, b"")


async def test_client_of_ones_own_gets_the_mounted_applications() -> None:
    shop = with_web(Shop())
    async with open_app(shop.app, now=NOW) as harness:
        transport = httpx.ASGITransport(harness.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/shop/ord%20er?q=", json={"n": 1})
        assert answer.status_code == 201
        assert await harness.drain() == 2


async def test_error_of_the_test_stays_what_it_is() -> None:
    shop = with_web(Shop())
    with pytest.raises(KeyError):
        async with open_app(shop.app) as harness:
            await harness.request("GET", "/nowhere")
            raise KeyError("test")
    assert shop.log[-1] == "down"


async def test_settings_are_checked_and_the_vault_is_usable() -> None:
    shop = Shop()
    async with open_app(shop.app, config={"engine": {"retry_max_s": 10.0}}) as harness:
        sealed = harness.ctx.vault.seal(b"secret", context="x")
        assert harness.ctx.vault.open(sealed, context="x") == b"secret"
    with pytest.raises(Exception, match="nearest known is desk"):
        async with open_app(shop.app, config={"shop": {"dsk": "x"}}):
            pass


@async_test
async def check(harness_type: type[Harness], value: int = 1) -> None:
    """Not collected: called below."""
    async with open_app(App("shop")) as harness:
        assert isinstance(harness, harness_type) and value == 2


def test_async_test_runs_a_coroutine_with_its_arguments() -> None:
    check(Harness, value=2)
    with pytest.raises(AssertionError):
        check(Harness)


def test_no_worker_imports_it() -> None:
    script = (
        "import sys, cordata.wiring.worker, cordata.services.consumer, cordata.cli\n"
        "print([name for name in sys.modules if name.startswith('cordata.testing')])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "daemon")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
