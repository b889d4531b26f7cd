"""Layers start bottom up, stop top down; whoever fails stops the role in the same order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from cordata.heartbeat import Heartbeat
from cordata.runner import Layer, Runner
from cordata.systemd import Notifier


class Recorder(Notifier):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self._changed = asyncio.Event()

    def _send(self, *lines: str) -> None:
        if lines:
            self.sent.append("\n".join(lines))
            self._changed.set()

    async def until(self, true: Callable[[list[str]], bool]) -> None:
        while not true(self.sent):
            self._changed.clear()
            await self._changed.wait()


class Fake:
    """A service that writes down what happens to it."""

    def __init__(self, name: str, diary: list[str]) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self._diary = diary

    async def run(self, stop: asyncio.Event) -> None:
        self._diary.append(f"{self.name} starts")
        self.ready.set()
        await stop.wait()
        self._diary.append(f"{self.name} stops")


class Failing(Fake):
    def __init__(self, name: str, diary: list[str]) -> None:
        super().__init__(name, diary)
        self.go = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self.ready.set()
        await self.go.wait()
        raise RuntimeError("broken")


def three_layers(diary: list[str]) -> list[Layer]:
    return [Layer(name, [Fake(name, diary)]) for name in ("intake", "delivery", "stores")]


async def run_until_ready(runner: Runner, notifier: Recorder) -> asyncio.Task[int]:
    task = asyncio.ensure_future(runner.run())
    await notifier.until(lambda sent: any("READY=1" in line for line in sent))
    return task


async def test_runner_starts_bottom_up_and_stops_top_down_when_told_to_stop() -> None:
    diary: list[str] = []
    notifier = Recorder()
    runner = Runner(three_layers(diary), role="test", notifier=notifier)
    task = await run_until_ready(runner, notifier)
    runner.stop()
    runner.stop()
    assert await task == 0
    assert diary == [
        "stores starts",
        "delivery starts",
        "intake starts",
        "intake stops",
        "delivery stops",
        "stores stops",
    ]
    assert notifier.sent == ["READY=1\nSTATUS=ready", "STOPPING=1\nSTATUS=stopping"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_runner_stops_in_order_when_signalled(number: signal.Signals) -> None:
    diary: list[str] = []
    notifier = Recorder()
    task = await run_until_ready(
        Runner(three_layers(diary), role="test", notifier=notifier), notifier
    )
    os.kill(os.getpid(), number)
    assert await task == 0
    assert diary[3:] == ["intake stops", "delivery stops", "stores stops"]


async def test_runner_is_not_ready_when_one_service_is_not() -> None:
    diary: list[str] = []
    notifier = Recorder()
    slow = Fake("slow", diary)
    slow.ready = asyncio.Event()
    up = asyncio.Event()

    class Slow(Fake):
        async def run(self, stop: asyncio.Event) -> None:
            await up.wait()
            await super().run(stop)

    runner = Runner(
        [Layer("intake", [Fake("intake", diary)]), Layer("stores", [Slow("slow", diary)])],
        role="test",
        notifier=notifier,
    )
    task = asyncio.ensure_future(runner.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert notifier.sent == []
    assert diary == []
    up.set()
    await notifier.until(bool)
    assert diary == ["slow starts", "intake starts"]
    runner.stop()
    assert await task == 0


async def test_runner_never_gets_ready_when_stopped_while_starting() -> None:
    notifier = Recorder()

    class Never(Fake):
        async def run(self, stop: asyncio.Event) -> None:
            await stop.wait()

    diary: list[str] = []
    runner = Runner(
        [Layer("intake", [Fake("intake", diary)]), Layer("stores", [Never("never", diary)])],
        role="test",
        notifier=notifier,
    )
    task = asyncio.ensure_future(runner.run())
    await asyncio.sleep(0)
    runner.stop()
    assert await task == 0
    assert diary == []
    assert not any("READY=1" in line for line in notifier.sent)


async def test_runner_stops_in_order_with_1_when_a_service_fails() -> None:
    diary: list[str] = []
    notifier = Recorder()
    failing = Failing("failing", diary)
    layers = three_layers(diary)
    layers[1] = Layer("delivery", [failing, Fake("sibling", diary)])
    task = await run_until_ready(Runner(layers, role="test", notifier=notifier), notifier)
    failing.go.set()
    assert await task == 1
    assert diary[-3:] == ["intake stops", "sibling stops", "stores stops"]


async def test_runner_ends_with_1_when_a_service_returns_before_its_stop() -> None:
    class Short(Fake):
        async def run(self, stop: asyncio.Event) -> None:
            return

    diary: list[str] = []
    layers = [Layer("intake", [Short("short", diary)]), *three_layers(diary)[1:]]
    assert await Runner(layers, role="test", notifier=Recorder()).run() == 1
    assert diary[-2:] == ["delivery stops", "stores stops"]


async def test_runner_ends_with_0_when_its_finite_service_has_finished() -> None:
    class Finite(Fake):
        finite = True

        async def run(self, stop: asyncio.Event) -> None:
            self.ready.set()

    diary: list[str] = []
    layers = [
        Layer("work", [Finite("finite", diary), Fake("work", diary)]),
        Layer("stores", [Fake("stores", diary)]),
    ]
    assert await Runner(layers, role="test", notifier=Recorder()).run() == 0
    assert diary == ["stores starts", "work starts", "work stops", "stores stops"]


async def test_runner_cuts_off_with_1_when_a_layer_does_not_stop_in_time() -> None:
    class Stubborn(Fake):
        cancelled = False

        async def run(self, stop: asyncio.Event) -> None:
            self.ready.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    diary: list[str] = []
    notifier = Recorder()
    stubborn = Stubborn("stubborn", diary)
    layers = [Layer("intake", [stubborn]), *three_layers(diary)[1:]]
    runner = Runner(layers, role="test", notifier=notifier, stop_timeout_s=0.01)
    task = await run_until_ready(runner, notifier)
    runner.stop()
    assert await task == 1
    assert stubborn.cancelled


async def test_runner_reloads_then_is_ready_again_when_hup_arrives() -> None:
    notifier = Recorder()
    reloaded = asyncio.Event()

    async def reload() -> str:
        reloaded.set()
        return "reload refused"

    runner = Runner(three_layers([]), role="test", notifier=notifier, reload=reload)
    task = await run_until_ready(runner, notifier)
    os.kill(os.getpid(), signal.SIGHUP)
    await reloaded.wait()
    await notifier.until(lambda sent: len(sent) == 3)
    runner.stop()
    assert await task == 0
    kind, moment = notifier.sent[1].split("\n")
    assert kind == "RELOADING=1"
    assert moment.removeprefix("MONOTONIC_USEC=").isdecimal()
    assert notifier.sent[2] == "READY=1\nSTATUS=ready; reload refused"


async def test_status_text_joins_what_services_say_in_layer_order() -> None:
    class Talking(Fake):
        def status(self) -> str:
            return f"{self.name} fine"

    layers = [
        Layer("intake", [Talking("a", [])]),
        Layer("stores", [Fake("quiet", []), Talking("b", [])]),
    ]
    assert Runner(layers, role="test").status_text() == "ready; a fine; b fine"


class AskedHeartbeat(Heartbeat):
    def __init__(self, max_age_s: float) -> None:
        super().__init__(max_age_s)
        self.asked = asyncio.Event()

    def fresh(self, now: float) -> bool:
        self.asked.set()
        return super().fresh(now)


async def test_watchdog_is_fed_only_while_every_heartbeat_is_fresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    notifier = Recorder()
    service = Fake("beating", [])
    heartbeat = service.heartbeat = AskedHeartbeat(max_age_s=3600.0)  # type: ignore[attr-defined]
    runner = Runner([Layer("intake", [service])], role="test", notifier=notifier)
    task = await run_until_ready(runner, notifier)
    await notifier.until(lambda sent: "WATCHDOG=1" in sent)
    heartbeat.max_age_s = -1.0
    fed = notifier.sent.count("WATCHDOG=1")
    heartbeat.asked.clear()
    await heartbeat.asked.wait()  # a tick found it stale
    heartbeat.asked.clear()
    await heartbeat.asked.wait()  # and the next one too
    assert notifier.sent.count("WATCHDOG=1") == fed
    heartbeat.max_age_s = 3600.0
    await notifier.until(lambda sent: sent.count("WATCHDOG=1") > fed)
    runner.stop()
    assert await task == 0


def test_heartbeat_is_fresh_until_its_age_is_reached() -> None:
    heartbeat = Heartbeat(max_age_s=5.0)
    heartbeat.touch()
    assert heartbeat.fresh(heartbeat.touched_at + 5.0)
    assert not heartbeat.fresh(heartbeat.touched_at + 5.1)
