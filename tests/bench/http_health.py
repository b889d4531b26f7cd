"""GET /api/health: our server beside uvicorn, granian, aiohttp and bare httptools, 4 processes.

python -m tests.bench.http_health [--rounds 5] [--seconds 4] [--workers 4] [--other CHECKOUT]

All run at once and are asked in turn, round after round, since the machine is not quiet: only the
ratios mean something. `hub` is the hub with its primary, on SQLite, and `other` that of another
checkout; `cordata`, uvicorn and granian serve one Starlette route. The spread is how 64 keep-alive
connections fell to our processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.servers import environment, hub, spent_s, wait_for
from tests.servers.process import free_port
from tests.servers.reaper import watched

CONNECTIONS = 64
_RATE = re.compile(r"Requests/sec:\s+([0-9.]+)")
_ERRORS = re.compile(r"(Socket errors|Non-2xx).*")
_COUNT = re.compile(r"(\d+) requests in")
_ID = re.compile(rb"x-request-id: ([0-9a-f]{16})")
#: The ratio of the hub to a peer that is to be reached.
WANTED = {"uvicorn": 2.5, "bare": 0.65}


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server."""

    url: str
    pid: int


def commands(workers: int, scratch: Path) -> dict[str, list[str]]:
    """How each server is started, on a free port."""
    python = [sys.executable, "-m"]
    app = "tests.bench.http_app:app"
    ports = [str(free_port()) for _ in range(5)]
    count = str(workers)
    uvicorn = [*python, "uvicorn", app, "--port", ports[1], "--workers", count]
    granian = [*python, "granian", "--interface", "asgi", "--port", ports[2], "--workers", count]
    return {
        "cordata": [*python, "tests.bench.http_worker", ports[0], count, str(scratch / "spread")],
        "uvicorn": [*uvicorn, "--no-access-log", "--log-level", "warning"],
        "granian": [*granian, "--no-ws", "--log-level", "warning", app],
        "aiohttp": [*python, "tests.bench.http_aiohttp", ports[3], count],
        "bare": [*python, "tests.bench.http_bare", ports[4], count],
    }


def url_of(argv: list[str]) -> str:
    port = next(argument for argument in argv if argument.isdigit() and len(argument) > 3)
    return f"http://127.0.0.1:{port}/api/health"


@contextlib.contextmanager
def group(argv: list[str], log: Path, *, peer: bool) -> Iterator[Peer]:
    """A server in a process group of its own; ended as a group. Raises: RuntimeError with what it
    wrote, if it does not start.
    """
    with log.open("wb") as output:
        process = watched(
            subprocess.Popen(
                argv,
                stdout=output,
                stderr=output,
                env=environment(peer=peer),
                start_new_session=True,
            )
        )
        try:
            try:
                wait_for(url_of(argv), process)
            except (RuntimeError, TimeoutError) as error:
                raise RuntimeError(
                    f"{' '.join(argv[1:4])}: {error}: {log.read_text()[-500:]}"
                ) from error
            yield Peer(url=url_of(argv), pid=process.pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wrk(peer: Peer, seconds: int) -> tuple[float, float]:
    """(requests per second, microseconds of CPU that the server's processes used per request)."""
    argv = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds}s", peer.url]
    before = spent_s(peer.pid)
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    used_s = spent_s(peer.pid) - before
    errors = _ERRORS.search(output)
    if errors is not None:
        print(f"  {peer.url}: {errors[0]}", flush=True)
    rate, count = _RATE.search(output), _COUNT.search(output)
    assert rate is not None and count is not None, output
    return float(rate[1]), used_s / int(count[1]) * 1e6


def spread(url: str) -> list[int]:
    """Connections per process of ours: the ids it makes begin with what is the process's own."""
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    found: Counter[bytes] = Counter()
    for connection in connections:
        connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: a\r\n\r\n")
        match = _ID.search(connection.recv(4096))
        found[match[1] if match else b""] += 1
    for connection in connections:
        connection.close()
    return sorted(found.values(), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--other", type=Path, help="a checkout whose hub runs beside this one's")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    print(f"GET /api/health, {options.workers} processes, {CONNECTIONS} keep-alive connections")
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        scratch = Path(name)
        peers = {
            server: stack.enter_context(
                group(argv, scratch / f"{server}.log", peer=server != "cordata")
            )
            for server, argv in commands(options.workers, scratch).items()
        }
        ours = stack.enter_context(hub(scratch, workers=options.workers))
        peers["hub"] = Peer(url=f"{ours.url}/api/health", pid=ours.pid)
        if options.other:
            (folder := scratch / "other").mkdir()
            theirs = stack.enter_context(
                hub(folder, workers=options.workers, checkout=options.other.resolve())
            )
            peers["other"] = Peer(url=f"{theirs.url}/api/health", pid=theirs.pid)
        for number in range(options.rounds):
            for server, peer in peers.items():
                rate, cost = wrk(peer, options.seconds)
                rates.setdefault(server, []).append(rate)
                costs.setdefault(server, []).append(cost)
            line = "  ".join(f"{server} {found[-1]:7.0f}/s" for server, found in rates.items())
            print(f"  round {number + 1}: {line}", flush=True)
        shares = spread(peers["cordata"].url)
    report(rates, costs)
    print(f"  spread {shares}: busiest / idlest {shares[0] / shares[-1]:.2f} (to reach: <= 2)")


def report(rates: dict[str, list[float]], costs: dict[str, list[float]]) -> None:
    """Medians, and ours in relation to each peer's."""
    rate = {server: statistics.median(found) for server, found in rates.items()}
    cost = {server: statistics.median(found) for server, found in costs.items()}
    for server in rates:
        shown = ", ".join(
            f"{ours} / {server} {rate[ours] / rate[server]:.2f},"
            f" CPU {cost[ours] / cost[server]:.2f}"
            for ours in ("cordata", "hub")
        )
        print(f"  {server:8} {rate[server]:8.0f}/s {cost[server]:6.1f} us CPU each   rate: {shown}")
    for server, wanted in WANTED.items():
        ratio = rate["hub"] / rate[server]
        print(f"  hub / {server} {ratio:.2f}x (to reach: {wanted:g}x)")


if __name__ == "__main__":
    main()
