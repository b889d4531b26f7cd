"""This checkout beside another one, in turns: is it as fast as it was?

python -m tests.bench.versus OTHER [--rounds 5] [--seconds 4] [part ...]

Each round measures both, the first one in turns; each figure is the median of the rounds, and the
last column says how many times as much (or as fast) this checkout does as the other. What is asked
over HTTP is asked by this checkout's client with the same requests. Benches of events and of the
pool are run as each checkout has them.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.servers import POSTGRES, ROOT, environment, family, hub, pss_kb, spent_s
from tests.bench.webhook import durable, fresh
from tests.servers.postgres import PostgresServer

#: Less is better.
_TIMES = ("ms", "s", "MB", "%", "us")
IDLE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of one run."""

    rounds: int
    seconds: int
    server: PostgresServer
    scratch: Path


Figures = dict[str, tuple[float, str]]
Part = Callable[[Path, Options, int], Figures]


def webhook(checkout: Path, options: Options, number: int, *, postgres: bool) -> Figures:
    """Durable requests of four workers; each is a new guest."""
    name = "postgres" if postgres else "sqlite"
    server = options.server if postgres else None
    with folder(options) as scratch, fresh(server) as store:
        with hub(scratch, store, checkout=checkout) as running:
            measured, used_us = durable(running, server, seconds=options.seconds, run=str(number))
    return {
        f"webhook, {name}": (measured.per_s, "/s"),
        f"webhook, {name}, p99": (measured.p99_ms, "ms"),
        f"webhook, {name}, processor": (used_us, "us"),
    }


def running_hub(checkout: Path, options: Options, number: int) -> Figures:
    """Health, start on an existing database, memory and idle cost, and the stop."""
    with folder(options) as scratch:
        with hub(scratch, checkout=checkout):
            pass  # the database is there then
        with hub(scratch, checkout=checkout) as running:
            started_s = running.started_s
            argv = ["wrk", "-t2", "-c64", f"-d{options.seconds}s", f"{running.url}/api/health"]
            health_s = spent_s(running.pid)
            output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
            health_s = spent_s(running.pid) - health_s
            found = re.search(r"Requests/sec:\s+([0-9.]+)", output)
            count = re.search(r"(\d+) requests in", output)
            assert found and count and "Non-2xx" not in output, output
            time.sleep(2.0)
            used_s = spent_s(running.pid)
            time.sleep(IDLE_S)
            used_s = spent_s(running.pid) - used_s
            memory_mb = sum(map(pss_kb, [running.pid, *family(running.pid)])) / 1024
            stopping = time.monotonic()
        stopped_s = time.monotonic() - stopping
    return {
        "health": (float(found[1]), "/s"),
        "health, processor": (health_s / int(count[1]) * 1e6, "us"),
        "start to ready": (started_s, "s"),
        "stop": (stopped_s, "s"),
        "idle, memory of all (PSS)": (memory_mb, "MB"),
        "idle, processor": (used_s / IDLE_S * 100, "%"),
    }


def bench(module: str, *arguments: str) -> Part:
    """A bench of the checkout's own; every `name: number unit` that it prints."""

    def part(checkout: Path, options: Options, number: int) -> Figures:
        argv = [sys.executable, "-m", f"tests.bench.{module}", *arguments]
        done = subprocess.run(
            argv,
            cwd=checkout,
            env=environment(checkout=checkout),
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            print(f"  {' '.join(argv[2:])} of {checkout}: {done.stderr[-300:]}", flush=True)
            return {}
        return dict(read(done.stdout, " ".join([module, *arguments[:2]])))

    return part


def read(text: str, where: str) -> Iterator[tuple[str, tuple[float, str]]]:
    """The figures of a bench's output: rates, and medians of times."""
    rates = r"^(relay|consume, \d workers|consume, \w+ handlers that write): ([\d,]+) "
    for name, number in re.findall(rates, text, re.MULTILINE):
        yield f"{where}: {name}", (float(number.replace(",", "")), "/s")
    for name, number in re.findall(r"^(.*): p50 ([\d.]+) ms", text, re.MULTILINE):
        yield f"{where}: {name}, p50", (float(number), "ms")
    head = ""
    for line in text.splitlines():
        if found := re.match(r"(\w+, \d+ outstanding)", line):
            head = found[1]
        elif found := re.match(r"  cordata\s+([\d,]+)", line):
            yield f"{where}: {head}", (float(found[1].replace(",", "")), "/s")
    for name, one, four in re.findall(r"^(cordata) +([\d,]+) +([\d,]+)$", text, re.MULTILINE):
        yield f"{where}: {name}, 1 process", (float(one.replace(",", "")), "/s")
        yield f"{where}: {name}, 4 processes", (float(four.replace(",", "")), "/s")


PARTS: Mapping[str, Part] = {
    "webhook-sqlite": lambda *given: webhook(*given, postgres=False),
    "webhook-postgres": lambda *given: webhook(*given, postgres=True),
    "hub": running_hub,
    "events-sqlite": bench("engine_store", "--store", "sqlite", "--alone", "consume", "latency"),
    "events-postgres": bench(
        "engine_store", "--store", "postgres", "--alone", "consume", "latency"
    ),
    "redis": bench("engine_redis", "--runs", "1", "--peers", "--", "consume", "relay", "latency"),
}


@contextmanager
def folder(options: Options) -> Iterator[Path]:
    """An empty directory."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        yield Path(name)


def table(found: Mapping[str, Mapping[str, list[float]]], units: Mapping[str, str]) -> None:
    """One line per figure: the other, this one, and how many times as good this one is."""
    print(f"\n{'':46}{'other':>12}{'this':>12}{'ratio':>8}  rounds")
    for name, unit in units.items():
        theirs, ours = found["other"].get(name, []), found["this"].get(name, [])
        if not (theirs and ours):
            print(f"{name:46}{'only one of them has it':>30}")
            continue
        ratios = [
            (a / b if unit in _TIMES else b / a)
            for a, b in zip(theirs, ours, strict=False)
            if a and b
        ]
        shown = " ".join(f"{one:.2f}" for one in ratios)
        print(
            f"{name:46}{statistics.median(theirs):12,.1f}{statistics.median(ours):12,.1f}"
            f"{statistics.median(ratios) if ratios else 0.0:8.2f}  {shown} ({unit})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    arguments = parser.parse_args()
    checkouts = {"other": arguments.other.resolve(), "this": ROOT}
    found: dict[str, dict[str, list[float]]] = {"other": {}, "this": {}}
    units: dict[str, str] = {}
    with ExitStack() as stack:
        options = Options(
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            server=stack.enter_context(PostgresServer(durable=True, settings=POSTGRES)),
            scratch=Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))),
        )
        for number in range(options.rounds):
            order = list(checkouts.items())
            for part in arguments.part or PARTS:
                for which, checkout in order if number % 2 else order[::-1]:
                    for name, (value, unit) in PARTS[part](checkout, options, number).items():
                        found[which].setdefault(name, []).append(value)
                        units[name] = unit
                        print(
                            f"  round {number + 1} {which:6}{name:46}{value:12,.1f} {unit}",
                            flush=True,
                        )
    table(found, units)


if __name__ == "__main__":
    main()
