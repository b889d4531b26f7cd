"""Calls of four client processes, as four workers are, and of a lone one, beside another checkout.

    python -m tests.bench.pool_clients [--other CHECKOUT] [--executor] [--rounds N] [--seconds S]

Each checkout has a pool of four processes of its own; they take turns, case by case. Beside the
rate stands the processor time of a call in all processes: on a busy machine that says more. The
gate is what was asked of a pool without a process in between: with four clients 1.5 times the rate
of the manager that was there before, alone 0.8 times that of its leases. `--executor`: beside four
processes each of which has a ProcessPoolExecutor(1); 4 times their rate was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.servers import cpu_s, family
from tests.servers.reaper import watched

#: Client processes and calls that each keeps under way.
CASES = {"4 clients x 16": (4, 16), "1 client x 64": (1, 64), "1 client x 1": (1, 1)}
_GATE = {
    ("4 clients x 16", "other"): 1.5,
    ("1 client x 64", "other"): 0.8,
    ("4 clients x 16", "executor"): 4.0,
}
_ROOT = Path(__file__).parents[2]
_PAYLOAD = "x" * 100


async def call(path: str, outstanding: int, seconds: float) -> None:
    """A client process: prints how many calls it made, and how long they took."""
    from cordata.pool import Client

    took: list[float] = []

    async def one() -> None:
        while (began := time.perf_counter()) < end:
            await client.execute("echo", _PAYLOAD, timeout=10.0)
            took.append(time.perf_counter() - began)

    async with Client(path) as client:
        for _ in range(50):
            await asyncio.gather(*(client.execute("echo", _PAYLOAD) for _ in range(outstanding)))
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.perf_counter() + seconds
        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one() for _ in range(outstanding)))
        spent = time.perf_counter() - began
    took.sort()
    figures = {
        "rate": len(took) / spent,
        "p50": took[len(took) // 2] * 1e3,
        "p99": took[int(len(took) * 0.99)] * 1e3,
        "calls": len(took),
        "cpu_s": time.process_time() - used,
    }
    print(json.dumps(figures), flush=True)


def execute(outstanding: int, seconds: float) -> None:
    """As `call`, by an executor with one process."""
    from tests.bench import pool_peers

    with pool_peers.executor(1) as start:
        pool_peers.warm(start)
        print("ready", flush=True)
        sys.stdin.readline()
        found = pool_peers.measure(start, "echo", outstanding=outstanding, seconds=seconds)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "rate": found.rate,
        "p50": found.quantile(0.5),
        "p99": found.quantile(0.99),
        "calls": len(found.latencies),
        "cpu_s": time.process_time() + used.ru_utime + used.ru_stime,  # with the start
    }
    print(json.dumps(figures), flush=True)


def serve() -> None:
    """A pool of this checkout; measures what each line of the input says."""
    from tests.contract.pool.running import running

    with tempfile.TemporaryDirectory(prefix="cordata-pool-") as directory:
        with running(Path(directory), app="tests.bench.pool_app:app", workers=4) as path:
            print("ready", flush=True)
            for line in sys.stdin:
                clients, outstanding, seconds = json.loads(line)
                argv = ["call", str(path), str(outstanding), str(seconds)]
                print(json.dumps(_measure(clients, argv)), flush=True)


def _measure(count: int, arguments: list[str]) -> dict[str, float]:
    argv = [sys.executable, "-P", __file__, *arguments]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                watched(
                    subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                )
            )
            for _ in range(count)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        clients = {pid for one in started for pid in (one.pid, *family(one.pid))}
        pool = {os.getpid(), *family(os.getpid())} - clients
        used = sum(map(cpu_s, pool))
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for process in started if process.stdout]
        pool_s = sum(map(cpu_s, pool)) - used
    calls = sum(one["calls"] for one in found)
    return {
        "rate": sum(one["rate"] for one in found),
        "p50": median(one["p50"] for one in found),
        "p99": max(one["p99"] for one in found),
        "us": (pool_s + sum(one["cpu_s"] for one in found)) / calls * 1e6,
    }


@contextmanager
def _pool(checkout: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'daemon'}:{checkout}"}
    argv = [sys.executable, "-P", __file__, "serve"]
    with watched(
        subprocess.Popen(
            argv,
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def _ask(pool: subprocess.Popen[str], clients: int, outstanding: int, seconds: float) -> Any:
    assert pool.stdin is not None and pool.stdout is not None
    pool.stdin.write(json.dumps([clients, outstanding, seconds]) + "\n")
    pool.stdin.flush()
    return json.loads(pool.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path)
    parser.add_argument("--executor", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    checkouts = {"this": _ROOT, **({"other": options.other} if options.other else {})}
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        pools = {name: stack.enter_context(_pool(one)) for name, one in checkouts.items()}
        for number in range(options.rounds):
            for case, (clients, outstanding) in CASES.items():
                for name in sorted(pools, reverse=bool(number % 2)):
                    figures = _ask(pools[name], clients, outstanding, options.seconds)
                    found.setdefault((case, name), []).append(figures)
            if options.executor:
                case, (clients, outstanding) = next(iter(CASES.items()))
                argv = ["execute", str(outstanding), str(options.seconds)]
                found.setdefault((case, "executor"), []).append(_measure(clients, argv))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'':28}{'calls/s':>10}{'us/call':>10}{'p50 ms':>10}{'p99 ms':>10}")
    for (case, name), rounds in found.items():
        row = [median(one[key] for one in rounds) for key in ("rate", "us", "p50", "p99")]
        print(f"{case:20}{name:8}{row[0]:10,.0f}{row[1]:10.1f}{row[2]:10.2f}{row[3]:10.2f}")
    for (case, name), least in _GATE.items():
        if (case, name) in found:
            pairs = list(zip(found[case, "this"], found[case, name], strict=True))
            share = median(own["rate"] / other["rate"] for own, other in pairs)
            time_of = median(own["us"] / other["us"] for own, other in pairs)
            good = "pass" if share >= least else "FAIL"
            print(
                f"{good}  {case}, {name}: {share:.2f} of the rate (>= {least}),"
                f" {time_of:.2f} of the time"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    elif sys.argv[1:2] == ["call"]:
        import uvloop

        uvloop.run(call(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
    elif sys.argv[1:2] == ["execute"]:
        execute(int(sys.argv[2]), float(sys.argv[3]))
    else:
        main()
