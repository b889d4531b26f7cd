"""What the measured pools run: an echo, and one millisecond of work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.bench.servers import processors, spent_s

#: A payload of the size of a small request.
PAYLOAD = b"x" * 100
OUTSTANDING = (1, 8, 64)
PROCESSES = 4
SPIN_S = 0.001


def echo(payload: object, session: object = None) -> object:
    return payload


def spin(payload: object, session: object = None) -> None:
    """A millisecond of processor time, however long others keep the processor."""
    end = time.thread_time() + SPIN_S
    while time.thread_time() < end:
        pass


def change(payload: object, session: Any) -> None:
    """A session that is another one after each call."""
    session.count(calls=1)


FUNCTIONS = {"echo": echo, "spin": spin}


@dataclass(slots=True)
class Figures:
    """One measurement: how many calls in how long, and how long each took."""

    seconds: float = 0.0
    #: Processor time of this process and all below it.
    cpu_s: float = 0.0
    #: The share of the processors' time that a hypervisor took away meanwhile.
    stolen: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The block is the measurement."""
        ticks, stolen = processors()
        before_s, began = spent_s(os.getpid()), time.perf_counter()
        yield
        self.seconds = time.perf_counter() - began
        self.cpu_s = spent_s(os.getpid()) - before_s
        ticks_after, stolen_after = processors()
        self.stolen = (stolen_after - stolen) / max(1, ticks_after - ticks)

    def quantile(self, share: float) -> float:
        """In milliseconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3


def verdict(what: str, found: float, wanted: float, *, most: bool = False) -> bool:
    """What was promised, beside what was found."""
    good = found <= wanted if most else found >= wanted
    sign = "<=" if most else ">="
    print(f"{'pass' if good else 'FAIL'}  {what:40}{found:8.2f}  ({sign} {wanted})")
    return good
