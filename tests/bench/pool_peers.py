"""The pools beside ours: each starts its processes, keeps so many calls outstanding, and stops."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.bench.pool_work import FUNCTIONS, PAYLOAD, PROCESSES, Figures

#: Starts a call; `done` is called at its end, in whatever thread.
Start = Callable[[str, Callable[[object], None]], None]
_CALLS_BEFORE = 200


@contextmanager
def executor(processes: int = PROCESSES) -> Iterator[Start]:
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield partial(_future, pool.submit)


@contextmanager
def loky() -> Iterator[Start]:
    from loky import ProcessPoolExecutor as Loky

    with Loky(PROCESSES) as pool:
        yield partial(_future, pool.submit)


@contextmanager
def pebble() -> Iterator[Start]:
    from pebble import ProcessPool

    with ProcessPool(PROCESSES, context=multiprocessing.get_context("spawn")) as pool:
        # With a deadline, as ours has: that is what it is chosen for.
        yield partial(_future, lambda function, payload: pool.submit(function, 10.0, payload))


@contextmanager
def pool() -> Iterator[Start]:
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as workers:

        def start(name: str, done: Callable[[object], None]) -> None:
            workers.apply_async(FUNCTIONS[name], (PAYLOAD,), callback=done, error_callback=done)

        yield start


def _future(submit: Callable[..., Future[Any]], name: str, done: Callable[[object], None]) -> None:
    submit(FUNCTIONS[name], PAYLOAD).add_done_callback(done)


PEERS = {
    "ProcessPoolExecutor": executor,
    "multiprocessing.Pool": pool,
    "loky": loky,
    "pebble": pebble,
}


def measure(start: Start, name: str, *, outstanding: int, seconds: float) -> Figures:
    """Keep so many calls under way for so long, from one thread, as each of these is used."""
    figures = Figures()
    free = threading.Semaphore(outstanding)
    with figures.measured():
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            free.acquire()
            start(name, partial(_note, figures.latencies, free, time.perf_counter()))
        for _ in range(outstanding):
            free.acquire()
    return figures


def warm(start: Start) -> None:
    """Until each process has imported what it runs."""
    free = threading.Semaphore(0)
    for name in FUNCTIONS:
        for _ in range(_CALLS_BEFORE):
            start(name, lambda _: free.release())
        for _ in range(_CALLS_BEFORE):
            free.acquire()


def _note(latencies: list[float], free: threading.Semaphore, began: float, _: object) -> None:
    latencies.append(time.perf_counter() - began)
    free.release()
