"""The pool under a steady load for minutes, its children recycled all the time: is memory flat?

    python -m tests.bench.pool_soak [SECONDS]

Prints a table of the memory (PSS) and open files of client, workers and children. Over the last
60 % of the time none of it may grow by more than 1 MB a minute, or 1 MB where that is more. Exit
code 1 when it does, when a call ends as it should not, or when nothing was recycled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from tests.bench.servers import pss_kb
from tests.integration.pool.chaos.house import House, house
from tests.servers.process import children
from tests.servers.reaper import swept, terminated_in_order

from cordata.errors import CallCancelled, CommandFailed, DeadlineExceeded
from cordata.pool import Client

WORKERS = 4
LANES = 32
CALLS_PER_S = 400
#: A child lives so long, or for so many calls.
MAX_AGE_S, MAX_CALLS = 20.0, 1500
#: The part of the time that is judged; before it caches fill.
JUDGED = 0.6
MOST_MB_PER_MIN, MOST_MB = 1.0, 1.0
#: A spare, or an operator's connection, comes and goes.
MOST_FILES = 8
PARTS = ("client", "workers", "children")


@dataclass
class Load:
    """What is asked of the pool, and what came of it."""

    path: Path
    evidence: Path
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """So many calls a second until it is over."""
        async with Client(self.path, timeout=30.0) as client, asyncio.TaskGroup() as group:
            for number in range(LANES):
                group.create_task(self._lane(client, random.Random(number)))

    async def _lane(self, client: Client, rng: random.Random) -> None:
        session = ""
        while not self.over.is_set():
            began = time.monotonic()
            if not session or rng.random() < 0.005:  # the former one ends by its time
                session = (await client.sessions.create(ttl_s=10.0)).id
            try:
                self.ends[await self._call(client, session, rng)] += 1
            except Exception as error:  # noqa: BLE001 - told at the end
                self.faults.append(repr(error))
            left_s = began + LANES / CALLS_PER_S - time.monotonic()
            await asyncio.sleep(max(0.0, left_s))

    async def _call(self, client: Client, session: str, rng: random.Random) -> str:
        kinds = {"mark": 80, "mark_async": 8, "pages": 4, "fail": 4, "cancel": 4, "hang": 0.02}
        kind = rng.choices([*kinds], [*kinds.values()])[0]
        payload = {"id": str(rng.randrange(20)), "sleep_s": 0.001, "parts": 10}
        payload["blob"] = bytes(rng.randrange(2000) if rng.random() < 0.99 else 200_000)
        with suppress(CommandFailed, CallCancelled, DeadlineExceeded):
            if kind == "pages":
                async for _ in client.stream(kind, payload, session=session):
                    pass
                return kind
            timeout = 0.3 if kind == "hang" else None
            command = "mark" if kind == "cancel" else kind
            call = client.start(command, payload, session=session, timeout=timeout)
            if kind == "cancel":
                call.cancel()
            await call
            if kind in ("hang", "fail"):
                raise AssertionError(f"{kind} gave a result")
            return kind
        if kind not in ("hang", "fail", "cancel"):
            raise AssertionError(f"{kind} did not give one")
        return kind


@dataclass
class Sample:
    """One row of the table."""

    at_s: float
    mb: dict[str, float]
    files: dict[str, int]
    children: int
    calls: int


@dataclass
class Watch:
    """Looks at the processes now and then."""

    house: House
    load: Load
    samples: list[Sample] = field(default_factory=list)
    #: Every child ever seen.
    pids: set[int] = field(default_factory=set)

    async def run(self, seconds: float) -> None:
        """Until the time is over."""
        began = time.monotonic()
        step_s = min(5.0, seconds / 20)
        self._print("seconds", "client MB", "worker MB", "child MB", "files", "children", "calls")
        while (at_s := time.monotonic() - began) < seconds:
            self._look(at_s)
            await asyncio.sleep(step_s)
        self.load.over.set()

    def _look(self, at_s: float) -> None:
        pids = self.processes()
        self.pids.update(pids["children"])
        mb, files = {}, {}
        for part, found in pids.items():
            sizes = [size for size in map(_pss_mb, found) if size]
            mb[part] = statistics.median(sizes) if sizes else 0.0
            files[part] = max(map(_files, found), default=0)
        calls = sum(self.load.ends.values())
        self.samples.append(Sample(at_s, mb, files, len(pids["children"]), calls))
        if len(self.samples) % 3 == 1:
            told = [f"{mb[part]:.2f}" for part in PARTS]
            counts = "/".join(str(files[part]) for part in PARTS)
            self._print(f"{at_s:.0f}", *told, counts, len(pids["children"]), calls)

    def processes(self) -> dict[str, list[int]]:
        """Pids by part."""
        workers = [worker.process.pid for worker in self.house.workers]
        return {
            "client": [os.getpid()],
            "workers": workers,
            "children": [child for pid in workers for child in children(pid)],
        }

    def _print(self, *cells: object) -> None:
        print("".join(f"{cell!s:>12}" for cell in cells), flush=True)


def _pss_mb(pid: int) -> float:
    with suppress(OSError):
        return pss_kb(pid) / 1024
    return 0.0  # it has just ended


def _files(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def judge_samples(samples: list[Sample], seconds: float) -> Iterator[tuple[bool, str]]:
    """Verdict lines on memory and open files."""
    judged = [one for one in samples if one.at_s >= (1 - JUDGED) * seconds]
    most = max(MOST_MB_PER_MIN, MOST_MB * 60 / (JUDGED * seconds))
    times = [one.at_s / 60 for one in judged]
    for part in PARTS:
        slope = statistics.linear_regression(times, [one.mb[part] for one in judged]).slope
        yield slope <= most, f"{part}: {slope:+.2f} MB a minute  (<= {most:.1f})"
    half = len(judged) // 2
    for part in PARTS:
        early = max(one.files[part] for one in judged[:half])
        late = max(one.files[part] for one in judged[half:])
        yield late <= early + MOST_FILES, f"{part}: open files {early}, then {late}"


def judge(watch: Watch, seconds: float, before: dict[str, list[int]]) -> Iterator[tuple[bool, str]]:
    """Verdict lines."""
    yield from judge_samples(watch.samples, seconds)
    wanted = int(WORKERS * seconds / MAX_AGE_S / 2) + WORKERS
    yield (
        len(watch.pids) >= wanted,
        f"children, one after the other: {len(watch.pids)}  (>= {wanted})",
    )
    after = watch.processes()
    same = before["workers"] == after["workers"]
    yield same, "workers are those of the beginning"
    faults = Counter(watch.load.faults)
    yield not faults, f"calls: {dict(watch.load.ends)}; faults: {dict(faults.most_common(5))}"


def soak(directory: Path, seconds: float) -> bool:
    """Whether all went well."""
    age_s = min(MAX_AGE_S, seconds / 5)
    settings = f"max_age_s = {age_s}\nmax_calls = {MAX_CALLS}\nkill_grace_s = 0.5\n"
    with house(directory, workers=WORKERS, settings=settings) as found:
        watch = Watch(found, Load(found.path, found.evidence))
        before = watch.processes()

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(watch.load.run())
                group.create_task(watch.run(seconds))

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(both())
        verdicts = list(judge(watch, seconds, before))
        file = directory / "store" / "pool" / "sessions.db"
        size = sum(one.stat().st_size for one in file.parent.iterdir()) / 2**20
        verdicts.append((size < 16, f"file of sessions: {size:.1f} MB  (< 16)"))
        found.stop()
        left = found.left()
        verdicts.append((not left, f"processes left: {left}"))
    for good, line in verdicts:
        print(f"{'pass' if good else 'FAIL'}  {line}")
    return all(good for good, _ in verdicts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=300.0)
    seconds = parser.parse_args().seconds
    terminated_in_order()
    with tempfile.TemporaryDirectory(prefix="cordata-soak-") as directory:
        good = soak(swept(Path(directory)), seconds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
