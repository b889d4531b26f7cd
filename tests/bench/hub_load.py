"""The hub under the load of an agency: 200 hotels, a million requests stored, 20 polls and 200
webhooks a second at once; and one poll for which 1,000 requests wait.

python -m tests.bench.hub_load [--store sqlite|postgres] [--requests 1000000] [--seconds 60]

A poll is OTA_Read by the next of 300 users (three protocol versions), with the acknowledgement of
what came; webhooks are generic ones and forms. All are begun on schedule (hub_load_drive.py). With
--folder the embedded store is made there once and found again by the next run, which adds to it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import uvloop
from tests.bench.growth_fill import fill, make_parties
from tests.bench.hub_load_drive import PROTOCOLS, Taken, alpinebits, drive, percentile
from tests.bench.hub_load_http import Connections
from tests.bench.hub_load_store import WAITING, Party, read_parties, write_parties
from tests.bench.servers import Server, command_line, family, hub, spent_s
from tests.servers.postgres import PostgresServer

from alpinehub.alpinebits_client.message import HotelName, read_requests

#: Milliseconds that 99 of 100 may take at most.
WANTED_MS = {"poll": 100.0, "webhook": 50.0}
#: MB that a long list may take of a worker, and the growth of one from the first third of a run to
#: the last that still is flat.
WANTED_MB, FLAT = 8.0, 0.05
_SAMPLE_S = 1.0
_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is measured."""

    hotels: int = 200
    requests: int = 1_000_000
    #: Requests that wait for one poll.
    waiting: int = 1000
    polls: float = 20.0
    webhooks: float = 200.0
    #: Measured, and before that under the same load: caches of a bounded size (10 MB) fill up.
    seconds: float = 60.0
    warm: float = 30.0
    workers: int = 2


@dataclass(slots=True)
class Figures:
    """What came out."""

    taken: Taken
    #: RSS of each worker in MB, by process id, every second.
    memory: dict[int, list[float]]
    #: Seconds of a core in each second, of the hub's processes and of the generator.
    cores: tuple[float, float] = (0.0, 0.0)
    #: Of the poll of everything that waits, the first time and again: seconds, requests, MB.
    long: list[tuple[float, int, float]] = field(default_factory=list)


@contextmanager
def prepared(folder: Path, store: str, load: Load) -> Iterator[tuple[Server, list[Party]]]:
    """The hub, running on the store that the load wants."""
    known = folder / "parties.json"
    if not known.exists():
        begin = perf_counter()
        with hub(folder, store, workers=1):
            pass  # it makes the schema, and does now what it does once
        config = folder / "hub" / "cordata.toml"
        parties = asyncio.run(make_parties(config, load.hotels))
        fill(config, store, parties, requests=load.requests, each=2, waiting=load.waiting)
        write_parties(known, parties)
        print(f"  {load.requests} requests stored in {perf_counter() - begin:.0f} s", flush=True)
    with hub(folder, store, workers=load.workers) as server:
        yield server, read_parties(known)


async def measure(server: Server, folder: Path, parties: list[Party], load: Load) -> Figures:
    """The load, then the long list."""
    port = int(server.url.rpartition(":")[2])
    rates = {"polls": load.polls, "webhooks": load.webhooks}
    workers = workers_of(server)
    run = f"{time.time_ns() // 1_000_000:x}"
    busy = parties[:-1]
    await drive(port, busy, **rates, seconds=load.warm, run=f"{run}w")
    memory: dict[int, list[float]] = {pid: [] for pid in workers}
    sampling = asyncio.create_task(_sample(memory))
    begun, used = perf_counter(), _cpu_s(server)
    taken = await drive(port, busy, **rates, seconds=load.seconds, run=run)
    ended, after = perf_counter(), _cpu_s(server)
    sampling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sampling
    hub_s, our_s = (
        (late - early) / (ended - begun) for early, late in zip(used, after, strict=True)
    )
    figures = Figures(taken, memory, (hub_s, our_s))
    for _ in range(2):
        figures.long.append(await _long_poll(port, parties[-1], workers))
    return figures


def workers_of(server: Server) -> list[int]:
    """Process ids of those that answer requests."""
    return [pid for pid in family(server.pid) if "worker" in command_line(pid)]


def _cpu_s(server: Server) -> tuple[float, float]:
    return spent_s(server.pid), time.process_time()


async def _sample(memory: dict[int, list[float]]) -> None:
    while True:
        for pid, sizes in memory.items():
            sizes.append(_rss_mb(pid))
        await asyncio.sleep(_SAMPLE_S)


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def _long_poll(port: int, party: Party, workers: list[int]) -> tuple[float, int, float]:
    """Seconds, requests that came, MB that the worker had more at its peak."""
    connections = Connections(port)
    await connections.open(1)
    (user,) = party.users.values()
    document = read_requests(HotelName(code=WAITING))
    headers, body = alpinebits(user, PROTOCOLS[-1], "OTA_Read:GuestRequests", document)
    for pid in workers:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
    before = {pid: _rss_mb(pid) for pid in workers}
    begin = perf_counter()
    _, answer = await connections.post("/api/alpinebits", headers, body)
    took = perf_counter() - begin
    await connections.close()
    grown = max(_peak_mb(pid) - before[pid] for pid in workers)
    return took, answer.count(b"<HotelReservation "), grown


def judge(figures: Figures, load: Load) -> list[tuple[bool, str]]:
    """Each thing that is wanted: whether it is so, and a line."""
    verdicts = []
    for kind, wanted in WANTED_MS.items():
        p99 = percentile(figures.taken.latencies[kind], 0.99) * 1000
        verdicts.append((0 < p99 <= wanted, f"{kind} p99 {p99:.1f} ms (to reach: {wanted:g} ms)"))
    failed = figures.taken.errors.total()
    verdicts.append((not failed, f"errors {failed}"))
    for pid, sizes in figures.memory.items():
        third = max(1, len(sizes) // 3)
        first, last = (sum(part) / len(part) for part in (sizes[:third], sizes[-third:]))
        text = f"worker {pid}: {first:.1f} MB in the first third, {last:.1f} MB in the last"
        verdicts.append((last <= first * (1 + FLAT), f"{text} (flat: +{FLAT:.0%})"))
    for took, came, grown in figures.long:
        text = f"a poll of {came}: {took * 1000:.0f} ms, {grown:+.1f} MB"
        good = came == load.waiting and grown <= WANTED_MB
        verdicts.append((good, f"{text} (to reach: {load.waiting}, {WANTED_MB:g} MB)"))
    return verdicts


def show(figures: Figures, load: Load) -> None:
    """Print what came out, and whether it is what is wanted."""
    taken = figures.taken
    for kind, values in taken.latencies.items():
        p50, p99 = (percentile(values, share) * 1000 for share in (0.5, 0.99))
        print(
            f"  {kind:8}{len(values):7}  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  "
            f"max {max(values) * 1000:7.1f} ms"
        )
    late = percentile(taken.late, 0.99) * 1000
    print(f"  {taken.fetched} requests fetched; the generator itself was late by p99 {late:.1f} ms")
    hub_cores, our_cores = figures.cores
    print(f"  cores used: {hub_cores:.2f} by the hub, {our_cores:.2f} by the generator")
    for text, count in taken.errors.most_common(10):
        print(f"  error {count} times: {text}")
    for pid, sizes in figures.memory.items():
        print(f"  worker {pid}: RSS {sizes[0]:.1f} MB before, {sizes[-1]:.1f} MB after")
    for good, line in judge(figures, load):
        print(f"  {'pass' if good else 'FAIL'}  {line}")


def run_on(store: str, load: Load, folder: Path) -> Figures:
    """Measure on the embedded store in a folder, or on the database of a url; print it."""
    kind = store.partition(":")[0]
    print(
        f"The hub, {load.workers} workers, {kind}: {load.hotels} hotels, {load.requests} requests,"
        f" {load.polls:g} polls/s and {load.webhooks:g} webhooks/s for {load.seconds:g} s"
        f" (load average {os.getloadavg()[0]:.1f})",
        flush=True,
    )
    with prepared(folder, store, load) as (server, parties):
        figures = uvloop.run(measure(server, folder, parties, load))
    show(figures, load)
    return figures


def run(store: str, load: Load, folder: Path | None = None) -> None:
    """Measure on one kind of store."""
    with ExitStack() as stack:
        if folder is None or store != "sqlite":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        folder.mkdir(parents=True, exist_ok=True)
        url = "sqlite:"
        if store == "postgres":
            server = stack.enter_context(PostgresServer(durable=True, settings=_SETTINGS))
            url = stack.enter_context(server.database())
        run_on(url, load, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--folder", type=Path, help="keep the embedded store here")
    for name, value in ((one, getattr(Load(), one)) for one in Load.__dataclass_fields__):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    options = vars(parser.parse_args())
    store, folder = options.pop("store"), options.pop("folder")
    run(store, Load(**options), folder)


if __name__ == "__main__":
    main()
