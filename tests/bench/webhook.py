"""Durable webhook: requests/s and latency of the hub beside the FastAPI application, in rounds.

python -m tests.bench.webhook [--store sqlite|postgres] [--rounds 3] [--seconds 8]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.servers import POSTGRES, ROOT, Server, fastapi_peer, hub, spent_s
from tests.servers.postgres import PostgresServer

CONNECTIONS = 64
#: The ratio to reach on each store.
WANTED = {"sqlite": 15, "postgres": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One wrk run."""

    per_s: float
    p50_ms: float
    p99_ms: float
    errors: int


def wrk(server: Server, *, seconds: int, run: str) -> Measured:
    """64 connections, each request a booking of its own."""
    return scripted("booking.lua", f"{server.url}/api/webhook/generic", run, seconds=seconds)


def scripted(script: str, url: str, argument: str, *, seconds: int) -> Measured:
    """64 connections, by a script of this directory, which prints a line RESULT.

    One thread sends more than the servers can answer; a second one would take processor from them.
    """
    argv = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s"]
    argv += ["-s", str(ROOT / "tests/bench" / script), url, "--", argument]
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    result = {key: float(value) for key, value in (f.split("=") for f in line.split()[1:])}
    return Measured(
        per_s=result["requests"] / (result["duration_us"] / 1e6),
        p50_ms=result["p50_us"] / 1000,
        p99_ms=result["p99_us"] / 1000,
        errors=int(result["status_errors"] + result["socket_errors"]),
    )


def processor_s(server: Server, postgres: PostgresServer | None) -> float:
    """Processor time until now of a server, and of its database."""
    return spent_s(server.pid) + (spent_s(postgres.pid) if postgres else 0.0)


def durable(
    server: Server, postgres: PostgresServer | None, *, seconds: int, run: str
) -> tuple[Measured, float]:
    """A run of `wrk` after one to warm up, and microseconds of processor a request."""
    wrk(server, seconds=1, run=f"warm{run}")
    used_s = processor_s(server, postgres)
    measured = wrk(server, seconds=seconds, run=f"run{run}")
    used_s = processor_s(server, postgres) - used_s
    assert not measured.errors, measured
    return measured, used_s / (measured.per_s * seconds) * 1e6


@contextmanager
def fresh(server: PostgresServer | None) -> Iterator[str]:
    """The url of an empty store."""
    if server is None:
        yield "sqlite:"
        return
    with server.database() as url:
        yield url


def measure(
    scratch: Path, server: PostgresServer | None, *, rounds: int, seconds: int
) -> dict[str, list[Measured]]:
    """Ours and the peer's in turn, each alone on the machine and on a store of its own."""
    results: dict[str, list[Measured]] = {}
    for number in range(rounds):
        for start in (hub, fastapi_peer)[:: 1 - number % 2 * 2]:
            folder = scratch / f"{start.__name__}-{number}"
            folder.mkdir()
            with fresh(server) as store, start(folder, store) as running:
                wrk(running, seconds=1, run=f"warm{number}")
                measured = wrk(running, seconds=seconds, run=f"run{number}")
            results.setdefault(running.name, []).append(measured)
            print(
                f"  round {number + 1} {running.name:22} {measured.per_s:8.0f}/s  "
                f"p50 {measured.p50_ms:7.1f} ms  p99 {measured.p99_ms:7.1f} ms  "
                f"errors {measured.errors}",
                flush=True,
            )
    return results


def median(values: list[float]) -> float:
    return statistics.median(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=list(WANTED), help="default: each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    options = parser.parse_args()
    stores = [options.store] if options.store else list(WANTED)
    for store in stores:
        run(store, rounds=options.rounds, seconds=options.seconds)


def run(store: str, *, rounds: int, seconds: int) -> None:
    """Measure on one store and print what came out."""
    print(f"Durable POST /api/webhook/generic, 4 workers, {store}, {CONNECTIONS} connections")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = None
        if store == "postgres":
            server = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        results = measure(scratch, server, rounds=rounds, seconds=seconds)
    ours, peer = results["cordata"], results["FastAPI + SQLAlchemy"]
    ratio = median([m.per_s for m in ours]) / median([m.per_s for m in peer])
    print(f"  requests/s ratio {ratio:.1f}x (to reach: {WANTED[store]}x)")
    print(
        f"  our p99 {median([m.p99_ms for m in ours]):.1f} ms, "
        f"the peer's median {median([m.p50_ms for m in peer]):.1f} ms (to reach: below it)"
    )


if __name__ == "__main__":
    main()
