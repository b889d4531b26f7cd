"""Threads for what may block, and the courtesy a busy event loop owes them.

uvloop lets go of the interpreter lock for moments too short for a waiting thread to catch: on a
busy loop a thread that came back from a system call was seen waiting 100 to 700 ms for it, with
the write lock of the whole fleet in its hands. So while a job is out, the loop sleeps for a moment
every millisecond: long enough for the thread to get in, and cheap.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

from cordata import clock

T = TypeVar("T")

_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Courtesy:
    """How the loop makes room for one kind of job."""

    #: Length of each sleep.
    sleep_s: float
    #: Between sleeps: grows from a millisecond, this part of the job's age, up to `longest_s`.
    growth: float
    #: See growth.
    longest_s: float

    def pause_s(self, age_s: float) -> float:
        """Until the next sleep."""
        return min(max(age_s * self.growth, _PAUSE_S), self.longest_s)


#: One long system call: the thread needs the interpreter once, at its end.
WAITING = Courtesy(sleep_s=50e-6, growth=0.25, longest_s=0.02)
#: A query: it needs the interpreter for each row, and gets some hundred of them per sleep.
READING = Courtesy(sleep_s=150e-6, growth=0.01, longest_s=0.005)


class Job(Generic[T]):
    """One call in a thread. `then` runs on the loop's thread, once, when it is finished."""

    __slots__ = ("_call", "_then", "brief", "delivered", "error", "finished", "gate", "value")

    def __init__(self, call: Callable[[], T], then: Callable[[Job[T]], None], brief: bool) -> None:
        self._call = call
        self._then = then
        #: The loop's thread waits for `gate`, so nobody needs to wake it.
        self.brief = brief
        self.gate = threading.Lock()
        self.finished = False
        self.delivered = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """In the thread: make the call, keep what came of it."""
        try:
            self.value = self._call()
        except BaseException as error:  # noqa: BLE001 - it belongs to the loop's side, see result()
            self.error = error
        self.finished = True

    def deliver(self) -> None:
        """On the loop: tell who asked."""
        if not self.delivered:
            self.delivered = True
            self._then(self)

    def result(self) -> T:
        """What the call returned. Raises: what it raised."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class Crew:
    """The jobs in the threads of one store, and the courtesy while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: dict[Job[object], tuple[Courtesy, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, job: Job[object], courtesy: Courtesy) -> None:
        """Be courteous until the job is delivered."""
        self._jobs[job] = (courtesy, clock.monotonic())
        if self._timer is None:
            self._timer = self.loop.call_later(_PAUSE_S, self._give_way)

    def deliver(self, job: Job[object]) -> None:
        """Deliver a finished job, whoever noticed it first."""
        self._jobs.pop(job, None)
        job.deliver()

    def _give_way(self) -> None:
        self._timer = None
        if not self._jobs:
            return
        time.sleep(max(courtesy.sleep_s for courtesy, _ in self._jobs.values()))
        for job in [job for job in self._jobs if job.finished]:
            self.deliver(job)
        if self._jobs and self._timer is None:
            now = clock.monotonic()
            pauses = [courtesy.pause_s(now - since) for courtesy, since in self._jobs.values()]
            self._timer = self.loop.call_later(min(pauses), self._give_way)


class Hand:
    """One daemon thread, started at its first job, that does one job after the other.

    A daemon: a wait for the write lock cannot be cut short, and must not hold up the exit.
    """

    def __init__(self, crew: Crew, name: str, courtesy: Courtesy = WAITING) -> None:
        self._crew = crew
        self._courtesy = courtesy
        self._name = name
        self._queue: SimpleQueue[Job[object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Jobs given and not yet delivered.
        self.busy = 0

    def submit(self, call: Callable[[], T], then: Callable[[Job[T]], None]) -> None:
        """Make a call in the thread; `then(job)` runs on the loop when it is finished."""
        job = self._put(call, then, brief=False)
        self._crew.watch(job, self._courtesy)

    def submit_brief(
        self, call: Callable[[], T], then: Callable[[Job[T]], None], wait_s: float
    ) -> None:
        """As `submit`, but the loop's thread first waits up to `wait_s` seconds for the end.

        For a call that nearly always takes less than the switches of threads would cost: on a
        quick disk a commit is over before the loop could have done anything useful, and the write
        lock is not held while the thread waits for its turn in the interpreter.
        """
        job = self._put(call, then, brief=True)
        if not job.gate.acquire(timeout=wait_s):
            job.brief = False
            if not job.finished:
                self._crew.watch(job, self._courtesy)
                return
        self._crew.deliver(job)

    def _put(
        self, call: Callable[[], T], then: Callable[[Job[T]], None], *, brief: bool
    ) -> Job[object]:
        def done(job: Job[T]) -> None:
            self.busy -= 1
            then(job)

        job: Job[object] = Job(call, done, brief)  # type: ignore[arg-type]
        if brief:
            job.gate.acquire()
        self.busy += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(job)
        return job

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()
            if job.brief:
                job.gate.release()
            # Checked after `finished` was set: the loop looks in the other order, so one sees it.
            if not job.brief:
                try:
                    self._crew.loop.call_soon_threadsafe(self._crew.deliver, job)
                except RuntimeError:  # the loop is closed; nobody waits any more
                    return

    def stop(self) -> None:
        """End the thread after the jobs it has; waits only when it has none."""
        if self._thread is not None:
            self._queue.put(None)
            if not self.busy:
                self._thread.join()
            self._thread = None
