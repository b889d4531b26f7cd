"""Numbers for the status, which only grow."""

from __future__ import annotations

from collections import Counter

from cordata.core.pool.histogram import Histogram


class Complaints:
    """Whether to say that a process misbehaves: once a minute of each, and not of very many."""

    __slots__ = ("_said", "_unsaid")

    EVERY_S, PROCESSES = 60.0, 20

    def __init__(self) -> None:
        self._said: dict[int, float] = {}
        self._unsaid = 0

    def take(self, pid: int, now: float) -> int | None:
        """None: say nothing; else how often nothing was said since the last time."""
        while self._said:
            oldest, at = next(iter(self._said.items()))
            if now - at < self.EVERY_S:
                break
            del self._said[oldest]
        if pid in self._said or len(self._said) >= self.PROCESSES:
            self._unsaid += 1
            return None
        self._said[pid] = now
        unsaid, self._unsaid = self._unsaid, 0
        return unsaid


class Counting:
    """What the manager counts beside the dispatcher's own numbers."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "calls",
        "calls_per_s",
        "chunks",
        "connections",
        "frames_in",
        "frames_out",
        "last_calls",
        "protocol_errors",
        "recycles",
        "refused",
        "restarts",
        "results",
        "run_ms",
        "saturated",
        "stops",
        "too_large",
        "wait_ms",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.results = 0
        self.chunks = 0
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        #: Frames that were dropped for their size, and those that made no sense.
        self.too_large = 0
        self.protocol_errors = 0
        #: Refused because too many waited.
        self.saturated = 0
        #: Connections taken, by role.
        self.connections: Counter[str] = Counter()
        #: Connections closed for what the other side is or said, by code.
        self.refused: Counter[str] = Counter()
        #: Children that died or had to be killed, so that another one has to start, by reason.
        self.restarts: Counter[str] = Counter()
        #: Replacements begun because a child was old, fat, or by order, by reason.
        self.recycles: Counter[str] = Counter()
        #: Children that ended as they were asked to: replaced, or with their worker.
        self.stops = 0
        #: From arrival to a child, and within it. What a client gave to a child on loan did not
        #: arrive here.
        self.wait_ms = Histogram()
        self.run_ms = Histogram()
        self.calls_per_s = 0.0
        self.last_calls = 0

    def told(self, ev: str, why: str) -> None:
        """A worker tells of its child."""
        if ev == "due":
            self.recycles[why.partition(":")[0]] += 1
        elif ev == "exited" and why == "stop":
            self.stops += 1
        elif ev == "exited":
            self.restarts[why or "crash"] += 1

    def take_rate(self, elapsed_s: float) -> None:
        """Once a second or so: how many calls came since the last time."""
        self.calls_per_s = (self.calls - self.last_calls) / elapsed_s
        self.last_calls = self.calls
