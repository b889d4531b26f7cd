"""What a stored history and more workers cost: webhooks with 100,000 and 1,000,000 requests stored.

python -m tests.bench.growth [--other CHECKOUT] [--store sqlite|postgres] [--rounds 3]
    [--requests 100000 1000000] [--workers 1 2 4] [--seconds 4] [--load 20] [part ...]

`load`: 20 polls/s and 200 webhooks/s at fixed rates (hub_load_drive.py) on PostgreSQL with the
larger history; with --other in turns with another checkout, whose store its own code fills.
`rows`: durable webhooks as in the webhook bench, with each history and number of workers.

Each store is filled once and copied for each measurement: a database by its template, a file by cp.
A request in the larger history is one of ten of its guest, as in the smaller one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.bench.hub_load_drive import drive, percentile
from tests.bench.hub_load_store import read_parties
from tests.bench.servers import ROOT, environment, hub
from tests.bench.webhook import durable
from tests.servers.postgres import PostgresServer

HOTELS = 200
#: Requests of one guest.
EACH = 10
POLLS, WEBHOOKS = 20.0, 200.0
#: How many times worse a row may become, with ten times the data or with more workers.
WANTED = 1.25
#: Of the p99 of the other checkout.
WANTED_P99 = 0.7
_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
#: On disk for each request: tables, indexes and write-ahead log, of the filled store and its copy.
_BYTES_EACH = 14_000
_FILL_TIMEOUT_S = 1800
_WARM_S = 10.0

#: Of one row: value and unit.
Figures = dict[str, tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Filled:
    """A store with a history; nobody writes into it."""

    folder: Path
    #: Name of the template; None: a file in the folder.
    database: str | None

    @property
    def parties(self) -> Path:
        return self.folder / "parties.json"


class Stores:
    """The filled stores of a run, each made when it is first wanted."""

    def __init__(self, scratch: Path, server: PostgresServer, *, hotels: int = HOTELS) -> None:
        self._scratch = scratch
        self._server = server
        self._hotels = hotels
        self._filled: dict[tuple[Path, str, int], Filled] = {}

    def get(self, checkout: Path, kind: str, requests: int) -> Filled:
        """Raises: SystemExit when the disk has no room for it."""
        key = (checkout, kind, requests)
        if key not in self._filled:
            self._filled[key] = self._fill(checkout, kind, requests)
        return self._filled[key]

    def _fill(self, checkout: Path, kind: str, requests: int) -> Filled:
        free = shutil.disk_usage(self._scratch).free
        if free < requests * _BYTES_EACH:
            sys.exit(f"{free >> 30} GB free in {self._scratch}: too little for {requests} requests")
        folder = self._scratch / f"filled-{len(self._filled)}"
        folder.mkdir()
        begin = time.monotonic()
        database = self._server.create_database() if kind == "postgres" else None
        url = self._server.url(database) if database else "sqlite:"
        print(f"  filling {kind} with {requests:,} requests, for {checkout}", flush=True)
        with hub(folder, url, workers=1, checkout=checkout):
            pass  # it makes the schema
        filled = Filled(folder, database)
        config = folder / "hub" / "cordata.toml"
        words = [self._hotels, requests, EACH]
        argv = [sys.executable, "-P", str(ROOT / "tests/bench/growth_fill.py"), str(config), url]
        argv += [str(filled.parties), *map(str, words)]
        env = environment(checkout=checkout, CORDATA_CONFIG=str(config))
        subprocess.run(argv, check=True, env=env, timeout=_FILL_TIMEOUT_S)
        shutil.rmtree(folder / "hub" / "run", ignore_errors=True)
        print(f"  filled in {time.monotonic() - begin:.0f} s", flush=True)
        return filled

    @contextmanager
    def copy(self, filled: Filled) -> Iterator[tuple[Path, str]]:
        """A copy to write into: folder and url."""
        with ExitStack() as stack:
            made = tempfile.TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
            source = str(filled.folder / "hub")
            subprocess.run(["cp", "-a", "--reflink=auto", source, str(folder)], check=True)
            url = "sqlite:"
            if filled.database:
                url = stack.enter_context(self._server.database(template=filled.database))
                self._server.execute("CHECKPOINT")
            os.sync()  # or the copy is written to disk while the requests wait for theirs
            yield folder, url


def load(stores: Stores, checkout: Path, requests: int, *, seconds: float) -> Figures:
    """Webhooks and polls at fixed rates, on PostgreSQL."""
    filled = stores.get(checkout, "postgres", requests)
    parties = read_parties(filled.parties)
    rates = {"polls": POLLS, "webhooks": WEBHOOKS}
    run = f"{time.time_ns() // 1_000_000:x}"
    with stores.copy(filled) as (folder, url), hub(folder, url, checkout=checkout) as running:
        port = int(running.url.rpartition(":")[2])
        uvloop.run(drive(port, parties, **rates, seconds=min(_WARM_S, seconds), run=f"{run}w"))
        taken = uvloop.run(drive(port, parties, **rates, seconds=seconds, run=run))
    for text, count in taken.errors.most_common(3):
        print(f"    error {count} times: {text}")
    figures: Figures = {}
    for kind in ("webhook", "poll"):
        for share in (0.5, 0.99):
            value = percentile(taken.latencies[kind], share) * 1000
            figures[f"load, {kind}, p{share * 100:.0f}"] = (value, "ms")
    figures["load, generator late, p99"] = (percentile(taken.late, 0.99) * 1000, "ms")
    figures["load, errors"] = (float(taken.errors.total()), "")
    return figures


def rows(
    stores: Stores,
    server: PostgresServer,
    kind: str,
    *,
    requests: int,
    workers: int,
    seconds: int,
    run: str,
) -> Figures:
    """Durable webhooks of 64 connections."""
    filled = stores.get(ROOT, kind, requests)
    postgres = server if kind == "postgres" else None
    with stores.copy(filled) as (folder, url), hub(folder, url, workers=workers) as running:
        measured, used_us = durable(running, postgres, seconds=seconds, run=run)
    return {
        f"webhook, {kind}": (measured.per_s, "/s"),
        f"webhook, {kind}, p99": (measured.p99_ms, "ms"),
        f"webhook, {kind}, processor": (used_us, "us"),
    }


def times_worse(unit: str, before: float, after: float) -> float:
    """How many times worse it became: of a rate less is worse, of a time more."""
    return before / after if unit == "/s" else after / before


#: By row, requests stored and workers.
Found = Mapping[tuple[str, int, int], Sequence[float]]


def table(
    found: Found, units: Mapping[str, str], requests: Sequence[int], workers: Sequence[int]
) -> tuple[list[str], float]:
    """Lines: the medians beside each other, and how many times worse each becomes with the larger
    history and with more workers; and the worst of these ratios.
    """
    small, large = min(requests), max(requests)
    least = min(workers)
    title = f"{'workers: requests stored':32}"
    heads = [f"{count}: {small:,} {large:,} ratio" for count in workers]
    lines = [title + "".join(f"{head:>34}" for head in heads) + "  against fewest workers"]
    worst = 0.0
    for row, unit in units.items():
        middle = {
            (size, count): statistics.median(found[row, size, count])
            for size in (small, large)
            for count in workers
        }
        line = f"{row + ' (' + unit + ')':32}"
        for count in workers:
            before, after = middle[small, count], middle[large, count]
            ratio = times_worse(unit, before, after)
            worst = max(worst, ratio)
            line += f"{before:14,.1f}{after:13,.1f}{ratio:7.2f}"
        more = [
            times_worse(unit, middle[size, least], middle[size, count])
            for count in workers
            if count != least
            for size in (small, large)
        ]
        worst = max([worst, *more])
        lines.append(line + "  " + " ".join(f"{ratio:.2f}" for ratio in more))
    return lines, worst


def measure_load(stores: Stores, options: argparse.Namespace) -> None:
    """In turns with the other checkout, if there is one; prints medians."""
    checkouts = {"this": ROOT}
    if options.other:
        checkouts["other"] = options.other.resolve()
    requests = max(options.requests)
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    units: dict[str, str] = {}
    for number in range(options.rounds):
        for which, checkout in list(checkouts.items())[:: 1 - number % 2 * 2]:
            figures = load(stores, checkout, requests, seconds=options.load)
            for name, (value, unit) in figures.items():
                found[which, name].append(value)
                units[name] = unit
                print(f"  round {number + 1} {which:6}{name:32}{value:10.1f} {unit}", flush=True)
    print(f"\nLoad on PostgreSQL with {requests:,} requests stored")
    for name, unit in units.items():
        middle = {which: statistics.median(found[which, name]) for which in checkouts}
        line = f"  {name:32}"
        line += "".join(f"{which} {value:8.1f} {unit}   " for which, value in middle.items())
        if len(middle) == 2 and middle["other"]:
            line += f"{middle['this'] / middle['other']:.2f}x"
        if name == "load, webhook, p99" and options.other:
            line += f" (to reach: {WANTED_P99:g}x)"
        print(line)


def measure_rows(stores: Stores, server: PostgresServer, options: argparse.Namespace) -> None:
    """Each history with each number of workers, in rounds; prints the table."""
    found: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
    units: dict[str, str] = {}
    cells = [(size, count) for count in options.workers for size in options.requests]
    kinds = [options.store] if options.store else ["sqlite", "postgres"]
    for number in range(options.rounds):
        for kind in kinds:
            for size, count in cells[:: 1 - number % 2 * 2]:
                figures = rows(
                    stores,
                    server,
                    kind,
                    requests=size,
                    workers=count,
                    seconds=options.seconds,
                    run=str(number),
                )
                shown = ""
                for name, (value, unit) in figures.items():
                    found[name, size, count].append(value)
                    units[name] = unit
                    shown += f"{value:10,.1f} {unit}"
                print(
                    f"  round {number + 1} {kind:9}{size:10,} stored, {count} workers {shown}",
                    flush=True,
                )
    lines, worst = table(found, units, options.requests, options.workers)
    print("\n" + "\n".join(lines))
    print(f"  worst ratio {worst:.2f} (to reach: {WANTED:g} at most)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    other = os.environ.get("OTHER")
    parser.add_argument("--other", type=Path, default=Path(other) if other else None)
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="of `rows`; default: each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement of `rows`")
    parser.add_argument("--load", type=float, default=20.0, help="seconds of `load`")
    parser.add_argument("--scratch", type=Path, help="directory for the stores; default: in /tmp")
    parser.add_argument("part", nargs="*", help="load, rows; default: both")
    options = parser.parse_args()
    print(f"{HOTELS} hotels; load average {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch)
        scratch = Path(stack.enter_context(made))
        server = stack.enter_context(PostgresServer(durable=True, settings=_SETTINGS))
        stores = Stores(scratch, server)
        if not options.part or "load" in options.part:
            measure_load(stores, options)
        if not options.part or "rows" in options.part:
            measure_rows(stores, server, options)


if __name__ == "__main__":
    main()
