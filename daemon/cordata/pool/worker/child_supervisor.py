"""Supervises one child of a worker: starts, watches and replaces it.

```
  (none) --back-off--> child --exit--> (none)
                         | due (max_calls, max_age_s, max_rss_bytes, or an operator's order)
                         v
                 child + spare --spare warm--> the spare is the child, the former one leaves after
                         |                     its call and gives waiting calls back
                         '-- child dies: the spare is the child; spare dies: the child stays
```
The deadline of a call is read from the status page, so a command that hangs is killed even if its
caller is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from zlib import crc32

from msgspec.structs import replace

from cordata import clock, events
from cordata.config.pool import PoolConfig
from cordata.core.retry import Backoff
from cordata.log import fields, logger
from cordata.pool.shared.page import Status
from cordata.pool.shared.paths import Place
from cordata.pool.shared.protocol import (
    ChildStatus,
    ChildToWorker,
    Death,
    Ping,
    Pong,
    StartFailed,
    Up,
)
from cordata.pool.shared.spec import ChildSpec
from cordata.pool.worker.process import PING, ChildProcess

log = logger("cordata.pool")

#: Longest pause between two checks of the children; the next deadline may end it earlier.
_LOOK_S = 1.0
#: A child that lived at least this long started well: the back-off begins anew.
_SETTLED_S = 60.0
#: After these the next child starts at once: the worker itself ended the child for one call or a
#: stop. After any other end the next start is delayed.
_AT_ONCE = ("deadline", "cancelled", "stop")
#: Share by which the age limit varies: children that started together must not leave together.
_JITTER = 0.1
#: Deaths that are remembered for clients.
_DEATHS = 64
#: Characters of the reason why a child did not start, which is shown in one line.
_LINE = 300


class ChildSupervisor:
    """One child of a worker, and its spare."""

    def __init__(self, spec: ChildSpec, config: PoolConfig, generations: Iterator[int]) -> None:
        """`generations`: those of all children of the worker, each used once."""
        self.spec = spec
        self.config = config
        self._generations = generations
        self.child: ChildProcess | None = None
        self._spare: ChildProcess | None = None
        #: Children that were replaced or stopped, and still run.
        self._leaving: set[ChildProcess] = set()
        #: Why the child is to be replaced; "": it is not.
        self._due = ""
        #: No child or spare is started before this time (monotonic).
        self._start_at = 0.0
        self._failures = 0
        #: Whether clients may send no new calls to the child.
        self.drained = False
        self._stopping = False
        self._wake = asyncio.Event()
        #: Set when the first child is warm.
        self.warmed = asyncio.Event()
        #: How children ended, by generation; the last _DEATHS ones.
        self._deaths: OrderedDict[int, asyncio.Future[Death]] = OrderedDict()
        self.started = self.crashed = self.killed = 0
        #: Why the last child did not start; "": it started.
        self.start_error = ""

    @property
    def up(self) -> bool:
        """Whether there is a warm child."""
        return self.child is not None and self.child.health.up

    def reload(self, config: PoolConfig, **of_spec: object) -> None:
        """Use other limits from now on; `of_spec`: new fields for the spec of the next child."""
        self.config = config
        self.spec = replace(self.spec, **of_spec)
        self._wake.set()

    def drain(self, drained: bool) -> None:
        """Set `drained`."""
        self.drained = drained
        for child in (self.child, self._spare):
            if child is not None and not child.leaving:
                child.set_drained(drained)

    def recycle(self) -> None:
        """Replace the child as soon as another one is warm."""
        if self.child is not None and not self._due:
            self._due = "asked for"
            self._wake.set()

    def death(self, generation: int) -> asyncio.Future[Death] | None:
        """How the child of this generation ended, when it has; None: there was no such child, or
        many have ended since.
        """
        living = {child.generation: child.death for child in self._all()}
        return living.get(generation) or self._deaths.get(generation)

    def kill_call(self, generation: int, client: int, id: int) -> bool:
        """Kill the child if it still runs this call; returns whether it did."""
        for child in self._all():
            if child.generation == generation and not child.killed:
                child.pause_calls()
                status = child.status()
                if status.running and (status.client, status.id) == (client, id):
                    self._kill(child, "cancelled")
                    return True
                child.resume_calls()
        return False

    def report(self) -> list[ChildStatus]:
        """The status of the child, its spare and those that leave."""
        now = clock.monotonic()
        return [self._report(child, now) for child in self._all()]

    def stop(self) -> None:
        """Start no more children; `run` ends when the child has ended its call."""
        self._stopping = True
        for child in self._all():
            child.leave()
        self._wake.set()

    async def run(self, *, tick: Callable[[], None]) -> None:
        """Run until `stop` is called; `tick` is called at each pass. Cancelling kills the child."""
        try:
            while not (self._stopping and not self._all()):
                tick()
                self.run_once(clock.monotonic())
                await self._sleep()
        finally:
            for child in self._all():
                child.destroy()

    def run_once(self, now: float) -> None:
        """Check each child, then start what is missing."""
        for child in (child for child in self._all() if not child.killed):
            self._check(child, now)
        if now < self._start_at or not self._missing():
            return
        if self.child is None:
            self.child = self._start(now)
        else:
            self._spare = self._start(now)

    def _missing(self) -> bool:
        """Whether the child is to be started, or a spare that replaces it."""
        if self._stopping:
            return False
        return self.child is None or bool(self._due and self._spare is None and self.up)

    def _check(self, child: ChildProcess, now: float) -> None:
        action = self._due_action(child, now)
        if action and action != PING:
            # If the worker was suspended, an answer may be unread; and the status page is newer.
            child.pause_calls()
            child.receive()
            action = self._due_action(child, now)
            if action in ("", PING):
                child.resume_calls()
        if action == PING:
            child.send(Ping())
        elif action:
            self._kill(child, action)
        elif child is self.child and child.health.up and not self._due:
            self._due = recycle_reason(
                self.config,
                place=self.spec.place,
                calls=child.status().ended,
                age_s=now - child.started_at,
                rss_bytes=child.rss_bytes() if self.config.max_rss_bytes else 0,
            )

    def _due_action(self, child: ChildProcess, now: float) -> str:
        status = child.status()
        return child.health.due_action(
            running=status.running,
            stopped=child.is_stopped(),
            deadline=status.deadline,
            now=now,
            config=self.config,
        )

    def _kill(self, child: ChildProcess, reason: str) -> None:
        status = child.status()
        if status.running:
            log.warning(
                "call %s of %s does not end: its child is killed (%s)",
                *(status.call_id, status.command, reason),
                extra=self._extra(
                    child,
                    events.POOL_CALL_KILLED,
                    call_id=status.call_id,
                    command=status.command,
                    reason=reason,
                ),
            )
        elif reason == "unhealthy":
            text = "child %d does not answer: it is killed"
            log.warning(text, child.pid, extra=self._extra(child, events.POOL_CHILD_UNHEALTHY))
        else:
            log.warning("child %d is killed: %s", child.pid, reason, extra=self._extra(child))
        child.kill(reason)

    async def _sleep(self) -> None:
        now = clock.monotonic()
        waits = [_LOOK_S]
        if self._missing():
            waits.append(self._start_at - now)
        for status in (child.status() for child in self._all() if not child.killed):
            if status.running and status.deadline:
                waits.append(status.deadline + self.config.kill_grace_s - now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, min(waits))):
                await self._wake.wait()
        self._wake.clear()

    def _start(self, now: float) -> ChildProcess | None:
        spec = replace(self.spec, generation=next(self._generations))
        try:
            child = ChildProcess(spec, on_message=self._on_message, on_exit=self._on_exit)
        except OSError as error:
            self.start_error = f"no process could be started: {error.strerror or error}"[:_LINE]
            log.error(
                "a child of worker %s could not be started: %s", self.spec.place.worker, error
            )
            self._delay_next_start(now)
            return None
        self.started += 1
        child.set_drained(self.drained)
        log.debug(
            "child %d is started", child.pid, extra=self._extra(child, events.POOL_CHILD_STARTING)
        )
        return child

    def _delay_next_start(self, now: float) -> None:
        """Delay the next start, longer after each failure."""
        self._failures += 1
        backoff = Backoff(self.config.restart_first_s, self.config.restart_max_s)
        self._start_at = now + backoff.delay_s(self._failures)

    def _on_message(self, child: ChildProcess, message: ChildToWorker) -> None:
        now = clock.monotonic()
        if isinstance(message, Pong):
            child.health.note_pong(now)
        elif isinstance(message, Up):
            self._on_up(child, now)
        elif isinstance(message, StartFailed):
            child.set_reason("init")
            child.start_error = " ".join(message.message.split())[:_LINE]
            extra = self._extra(child, events.POOL_CHILD_CRASHED, reason="init")
            log.error(
                "child %d could not warm up: %s",
                *(child.pid, message.message),
                extra=extra | {"child_trail": message.traceback.rstrip()},
            )
        self._wake.set()

    def _on_up(self, child: ChildProcess, now: float) -> None:
        child.health.note_up(now)
        if child.leaving:
            return
        try:
            child.publish()
        except OSError as error:
            log.error("the socket of child %d cannot be published: %s", child.pid, error)
            child.kill("init")
            return
        self.start_error = ""
        self.warmed.set()
        log.info(
            "child %d takes calls after %.2f s",
            *(child.pid, now - child.started_at),
            extra=self._extra(child, events.POOL_CHILD_READY),
        )
        if child is self._spare and self.child is not None:
            self._replace(self.child)

    def _replace(self, former: ChildProcess) -> None:
        """Let the spare take over; the former child leaves after its current call."""
        assert self._spare is not None
        log.info(
            "child %d is replaced by %d after %d calls: %s",
            *(former.pid, self._spare.pid, former.status().ended, self._due),
            extra=self._extra(former, events.POOL_CHILD_RECYCLED),
        )
        self._promote_spare()
        self._leaving.add(former)
        former.leave()

    def _promote_spare(self) -> None:
        self.child, self._spare, self._due = self._spare, None, ""

    def _on_exit(self, child: ChildProcess, death: Death, status: Status) -> None:
        now = clock.monotonic()
        self._log_exit(child, death, status)
        if not child.health.up and death.reason != "stop":
            self.start_error = child.start_error or (
                "it was not warm within init_timeout_s"
                if death.reason == "init"
                else f"it {death.how()} before it was warm"
            )
        if not death.reason:
            self.crashed += 1
        elif death.reason != "stop":
            self.killed += 1
        child.death.set_result(death)
        self._deaths[child.generation] = child.death
        while len(self._deaths) > _DEATHS:
            self._deaths.popitem(last=False)
        self._leaving.discard(child)
        if child is self.child:
            self._promote_spare()
        elif child is self._spare:
            self._spare = None
        if now - child.started_at >= _SETTLED_S:
            self._failures = 0
        if death.reason not in _AT_ONCE and not child.leaving:
            self._delay_next_start(now)
        self._wake.set()

    def _all(self) -> list[ChildProcess]:
        """All child processes that still run."""
        current = [child for child in (self.child, self._spare) if child is not None]
        return [*current, *self._leaving]

    def _report(self, child: ChildProcess, now: float) -> ChildStatus:
        status = child.status()
        state = "busy" if status.running else "ready"
        if not child.health.up:
            state = "starting"
        elif child.leaving:
            state = "leaving"
        elif status.drained:
            state = "draining" if status.running or status.waiting else "drained"
        running = status.running
        return ChildStatus(
            generation=child.generation,
            pid=child.pid,
            state=state,
            age_s=now - child.started_at,
            rss_bytes=child.rss_bytes(),
            calls=status.ended,
            failed=status.failed,
            waiting=status.waiting,
            command=status.command if running else "",
            call_id=status.call_id,
            running_s=max(0.0, now - status.started) if running else 0.0,
            left_s=max(0.0, status.deadline - now) if running else 0.0,
            due=self._due if child is self.child else "",
            spare=child is self._spare,
        )

    def _log_exit(self, child: ChildProcess, death: Death, status: Status) -> None:
        """Log a child's end: an error if it died by itself, a warning if it was killed."""
        more: dict[str, object] = {"reason": death.reason}
        if death.code is not None:
            more["exit_status"] = death.code
        if status.running:
            more["call_id"] = status.call_id
            more["command"] = status.command
        extra = self._extra(child, "", **more)
        where = " in a call" if status.running else ""
        if death.reason == "stop" and (death.signal is None or not child.health.up):
            log.debug("child %d stopped", child.pid, extra=extra)
        elif death.reason == "init" and death.signal is None:
            log.warning("child %d ended before it was warm", child.pid, extra=extra)
        elif death.reason:
            log.warning("child %d was killed%s: %s", child.pid, where, death.reason, extra=extra)
        else:
            # Without its last lines: errors are mailed, and the journal has the lines.
            log.error(
                "child %d of worker %s %s%s",
                *(child.pid, self.spec.place.worker, death.how(), where),
                extra=self._extra(child, events.POOL_CHILD_CRASHED, **more),
            )

    def _extra(
        self, child: ChildProcess, message_id: str = "", **more: object
    ) -> dict[str, object]:
        return fields(
            message_id,
            pool=self.spec.pool,
            worker=self.spec.place.worker,
            child_pid=child.pid,
            **more,
        )


def recycle_reason(
    config: PoolConfig, *, place: Place, calls: int, age_s: float, rss_bytes: int
) -> str:
    """The limit that a child has reached, as text for the journal; "": none."""
    if config.max_calls and calls >= config.max_calls:
        return f"max_calls: {calls} calls"
    if config.max_age_s and age_s >= longest_age_s(config.max_age_s, place):
        return f"max_age_s: {age_s:.0f} s"
    if config.max_rss_bytes and rss_bytes >= config.max_rss_bytes:
        return f"max_rss_bytes: {rss_bytes // 1_048_576} MiB"
    return ""


def longest_age_s(max_age_s: float, place: Place) -> float:
    """The age limit of a child at this place: `max_age_s` give or take a fixed tenth at most."""
    share = crc32(str(place).encode()) / 0xFFFF_FFFF
    return max_age_s * (1.0 - _JITTER + 2.0 * _JITTER * share)
