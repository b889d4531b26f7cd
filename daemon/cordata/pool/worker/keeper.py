"""Keeps one child alive for its worker: starts it, watches it, starts the next, replaces it.

```
  (none) --back-off--> child --exit--> (none)
                         | due (max_calls, max_age_s, max_rss_bytes, or asked for)
                         v
                 child + spare --spare warm, manager says retire--> child, the former leaves
                         |     --spare warm, and no such word-----> the same, by ourselves
                         '-- child dies: the spare is the child; spare dies: the child serves on
```
The manager is told of every step while it is there, and of the state when it comes back. Deadlines
are kept by the state page, so a command that hangs is killed without a manager, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from cordata import clock, events
from cordata.config.pool import PoolConfig
from cordata.core.pool.loan import LENT
from cordata.core.pool.message import Ping, Pong
from cordata.core.pool.order import (
    ChildToWorker,
    Drain,
    Due,
    Failed,
    Kill,
    Recycle,
    Retire,
    TakeBack,
    ToWorker,
    Up,
)
from cordata.core.pool.spec import ChildSpec
from cordata.log import fields, logger
from cordata.pool.worker.link import Link
from cordata.pool.worker.measure import outgrown
from cordata.pool.worker.process import ChildProcess, Exit
from cordata.pool.worker.slot import Slot
from cordata.pool.worker.watch import PING
from cordata.pool.worker.word import Step, exited, hello, holds, lament, mourn, step, unborn

log = logger("cordata.pool")

#: The page and the clock are looked at this often; a deadline that is nearer wakes earlier.
_LOOK_S = 1.0
#: A call that a client gave to its child is told of after so long.
_LONG_S = 0.2
#: Between two words about a child's memory.
_MEASURE_S = 10.0


class Keeper:
    """See the module."""

    def __init__(self, spec: ChildSpec, config: PoolConfig) -> None:
        self._spec = spec
        self._config = config
        self._slot = Slot()
        #: The first one was warm.
        self.warmed = asyncio.Event()
        self._wake = asyncio.Event()
        self._stopping = False
        self._link = Link(
            spec.socket,
            lambda: hello(self._spec),
            on_welcome=self._announce,
            on_message=self._ordered,
            on_lost=self._wake.set,
        )

    @property
    def up(self) -> bool:
        """Whether there is a warm child."""
        return self._slot.up

    @property
    def child(self) -> ChildProcess | None:
        """Who takes the calls, warm or not; None: the next one is not started yet."""
        return self._slot.child

    def reload(self, config: PoolConfig, *, log_level: str) -> None:
        """Other limits from now on; the next child logs at this level, too."""
        self._config = config
        self._spec = replace(self._spec, max_calls=config.max_calls, log_level=log_level)
        self._wake.set()

    async def run(self, stop: asyncio.Event, *, tick: Callable[[], None] = lambda: None) -> None:
        """Until `stop`, and until the child has ended its call then. Cancelled, it kills."""
        try:
            async with asyncio.TaskGroup() as group:
                side = [
                    group.create_task(self._link.run()),
                    group.create_task(self._wake_at(stop)),
                ]
                while not (self._stopping and not self._slot.all()):
                    tick()
                    if stop.is_set() and not self._stopping:
                        self._stop()
                    self.run_once(clock.monotonic())
                    await self._sleep()
                for task in side:
                    task.cancel()
        finally:
            for child in self._slot.all():
                child.destroy()

    def run_once(self, now: float) -> None:
        """One look at everything."""
        slot = self._slot
        for child in (child for child in slot.all() if not child.killed):
            self._look(child, now)
        if self._stopping or now < slot.start_at:
            return
        if slot.child is None:
            slot.child = self._start(now)
        elif slot.due and slot.spare is None and slot.up:
            slot.spare = self._start(now, spare=True)
        elif slot.spare is not None and slot.spare.watch.up:
            patience_s = self._config.health_timeout_s  # then a word was lost
            if not self._link.connected or slot.spare.watch.warm_s(now) >= patience_s:
                self._replace(slot.child)

    def _look(self, child: ChildProcess, now: float) -> None:
        hand = child.hand()
        if hand.busy and hand.serial >= LENT and now >= hand.started + _LONG_S:
            # Of no other call does the manager not know, and its status is to show it.
            self._link.send(holds(child, hand, now))
        found = child.watch.look(hand, now, self._config)
        if found and found != PING:
            # After a pause of this process its answer may lie there unread.
            child.hear()
            found = child.watch.look(child.hand(), now, self._config)
        if found == PING:
            child.send(Ping(id=0))
        elif found:
            if found in ("unhealthy", "deadline"):
                self._report(child, "unhealthy", why=found)
            log.warning("child %d has to go: %s", child.pid, found, extra=self._extra(child))
            child.kill(found)
            return
        elif child is self._slot.child and child.watch.up and not self._slot.due:
            limit = outgrown(child, self._config, self._spec.worker, now)
            if limit is not None:
                self._set_due(child, limit)
        if now >= child.measured_at + _MEASURE_S:
            child.measured_at = now
            self._report(child, "measured")

    async def _sleep(self) -> None:
        now = clock.monotonic()
        waits = [_LOOK_S]
        if self._slot.lacks_one:
            waits.append(self._slot.start_at - now)
        for hand in (child.hand() for child in self._slot.all() if not child.killed):
            if hand.busy and hand.deadline:
                waits.append(hand.deadline + self._config.kill_grace_s - now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, min(waits))):
                await self._wake.wait()
        self._wake.clear()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _start(self, now: float, *, spare: bool = False) -> ChildProcess | None:
        try:
            child = ChildProcess(
                replace(self._spec, spare=spare),
                epoch=lambda: self._link.epoch,
                on_message=self._heard,
                on_exit=self._exited,
            )
        except OSError as error:
            log.error("a child of worker %s could not be started: %s", self._spec.worker, error)
            self._link.send(unborn(error))
            self._pause(now)
            return None
        self._report(child, "started", why="spare" if spare else "")
        return child

    def _pause(self, now: float) -> None:
        first_s, longest_s = self._config.restart_min_s, self._config.restart_max_s
        self._slot.fail(now, first_s=first_s, longest_s=longest_s)

    def _heard(self, child: ChildProcess, message: ChildToWorker) -> None:
        """A child speaks."""
        now = clock.monotonic()
        if isinstance(message, Pong):
            child.watch.say_pong(now)
        elif isinstance(message, Up):
            child.watch.say_up(now)
            self._report(child, "warm")
            self.warmed.set()
            took_s = now - child.started_at
            log.debug("child %d is warm after %.2f s", child.pid, took_s, extra=self._extra(child))
        elif isinstance(message, Due):
            if child is self._slot.child and not self._slot.due:
                self._set_due(child, message.why)
        elif isinstance(message, Failed):
            child.blame("init")
            child.start_error = message.m
            lament(self._spec.worker, child, message)
        self._wake.set()

    def _set_due(self, child: ChildProcess, why: str) -> None:
        self._slot.due = why
        self._report(child, "due", why=why)

    def _exited(self, child: ChildProcess, end: Exit) -> None:
        """A child is dead."""
        now = clock.monotonic()
        self._link.send(exited(child, end), keep=True)  # a manager may know the child already
        mourn(self._spec.worker, child, end, epoch=self._link.epoch)
        if self._slot.gone(child, end, now):
            self._pause(now)
        self._wake.set()

    def _ordered(self, message: ToWorker) -> None:
        """The manager speaks. That it goes away is no news: another one comes."""
        if isinstance(message, Recycle):
            if self._slot.child is not None and not self._slot.due:
                self._set_due(self._slot.child, "asked for")
        elif isinstance(message, (Kill, Retire, TakeBack)):
            fingerprint = (message.pid, message.start)
            for child in self._slot.all():
                if (child.pid, child.start) != fingerprint:
                    continue
                if isinstance(message, Retire):
                    self._replace(child)
                elif isinstance(message, TakeBack):
                    child.take_back(message, self._link.send)
                    return
                elif child.hand().busy and child.hand().serial == message.n:
                    child.kill(message.why or "asked for")
        self._wake.set()

    def _replace(self, former: ChildProcess) -> None:
        """It leaves after the call in hand; the spare, if there is one, is in its place."""
        why, calls = self._slot.due or "displaced", former.hand().done
        successor = self._slot.replace(former)
        if successor is not None:
            log.info(
                "child %d is replaced by %d after %d calls: %s",
                *(former.pid, successor.pid, calls, why),
                extra=self._extra(former, events.POOL_CHILD_RECYCLED),
            )

    def _stop(self) -> None:
        self._stopping = True
        self._link.send(Drain())
        for child in self._slot.all():
            self._report(child, "retired")
            child.leave()

    def _announce(self) -> None:
        """A manager that may know nothing hears of the children. Who leaves does not dial again."""
        for child in self._slot.all():
            if child.leaving:
                continue
            self._report(child, "started", why="spare" if child.spare else "")
            if child.watch.up:
                self._report(child, "warm")
        if self._stopping:
            self._link.send(Drain())

    def _report(self, child: ChildProcess, ev: Step, *, why: str = "") -> None:
        self._link.send(step(child, ev, why=why))

    def _extra(self, child: ChildProcess, message_id: str = "") -> dict[str, object]:
        return fields(message_id, worker=self._spec.worker, child_pid=child.pid)
