"""Threads for what may block, and the courtesy a busy event loop owes them.

uvloop lets go of the interpreter lock for moments too short for a waiting thread to catch: on a
busy loop a thread that came back from a system call was seen waiting 100 to 700 ms for it, with
the write lock of the whole fleet in its hands. So while a job is out, the loop sleeps 50 us every
millisecond: long enough for the thread to get in, and cheap.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

_COURTESY_S = 50e-6
_FIRST_PAUSE_S = 0.001
#: A job that takes long needs less attention: the pause grows to a quarter of its age.
_LONGEST_PAUSE_S = 0.02


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
        self._jobs: set[Job[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def watch(self, job: Job[object]) -> None:
        """Be courteous until the job is delivered."""
        self._jobs.add(job)
        self._since = time.monotonic()
        if self._timer is None:
            self._timer = self.loop.call_later(_FIRST_PAUSE_S, self._courtesy)

    def deliver(self, job: Job[object]) -> None:
        """Deliver a finished job, whoever noticed it first."""
        self._jobs.discard(job)
        job.deliver()

    def _courtesy(self) -> None:
        self._timer = None
        if not self._jobs:
            return
        time.sleep(_COURTESY_S)
        for job in [job for job in self._jobs if job.finished]:
            self.deliver(job)
        if self._jobs and self._timer is None:
            age = time.monotonic() - self._since
            pause = min(max(age / 4, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            self._timer = self.loop.call_later(pause, self._courtesy)


class Hand:
    """One daemon thread, started at its first job, that does one job after the other.

    A daemon: a wait for the write lock cannot be cut short, and must not hold up the exit.
    """

    def __init__(self, crew: Crew, name: str) -> None:
        self._crew = crew
        self._name = name
        self._queue: SimpleQueue[Job[object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Jobs given and not yet delivered.
        self.busy = 0

    def submit(self, call: Callable[[], T], then: Callable[[Job[T]], None]) -> None:
        """Make a call in the thread; `then(job)` runs on the loop when it is finished."""
        job = self._put(call, then, brief=False)
        self._crew.watch(job)

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
                self._crew.watch(job)
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
