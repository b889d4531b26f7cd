"""What counting costs: processor time of a request with `[metrics] enabled` true and false.

python -m tests.bench.metrics [--rounds 10] [--seconds 2]

Two hubs run side by side, one of each, and are asked in turns, first the one, then the other. The
figures are the medians of the rounds; the ratios are taken within each round. A scrape is measured
by itself.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from tests.bench.servers import Server, hub, spent_s
from tests.bench.webhook import durable
from tests.servers.process import free_port

#: The ratio to stay below.
WANTED = 1.05
WORKERS = 2


def health(server: Server, *, seconds: int) -> float:
    """Microseconds of processor a request to the health route."""
    argv = ["wrk", "-t2", "-c16", f"-d{seconds}s", f"{server.url}/api/health"]
    used_s = spent_s(server.pid)
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    used_s = spent_s(server.pid) - used_s
    found = re.search(r"(\d+) requests in", output)
    assert found and "Non-2xx" not in output, output
    return used_s / int(found[1]) * 1e6


def scrape_ms(server: Server, address: str, *, times: int = 20) -> tuple[float, int]:
    """Milliseconds of processor a scrape, and its size."""
    url, size = f"http://{address}/metrics", 0
    for _ in range(2 * WORKERS):  # each imports prometheus_client at its first one
        urllib.request.urlopen(url, timeout=30).close()
    used_s = spent_s(server.pid)
    for _ in range(times):
        with urllib.request.urlopen(url, timeout=30) as response:
            size = len(response.read())
    return (spent_s(server.pid) - used_s) / times * 1000, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    address = f"127.0.0.1:{free_port()}"
    texts = {
        "on": f'[metrics]\nlisten = "{address}"\n',
        "off": "[metrics]\nenabled = false\n",
    }
    found: dict[str, list[dict[str, float]]] = {"health": [], "webhook": []}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        servers = {}
        for name, text in texts.items():
            (scratch / name).mkdir()
            running = hub(scratch / name, workers=WORKERS, config_text=text)
            servers[name] = stack.enter_context(running)
        time.sleep(2.0)  # what a start leaves to do
        for number in range(options.rounds):
            order = ("on", "off")[:: 1 - number % 2 * 2]
            seconds = options.seconds
            found["health"].append({one: health(servers[one], seconds=seconds) for one in order})
            runs = {
                one: durable(servers[one], None, seconds=seconds, run=f"{number}") for one in order
            }
            found["webhook"].append({one: used_us for one, (_, used_us) in runs.items()})
        cost_ms, size = scrape_ms(servers["on"], address)
    print(f"Processor a request, SQLite, {WORKERS} workers, {options.rounds} rounds in turn")
    for name, rounds in found.items():
        ratios = sorted(one["on"] / one["off"] for one in rounds)
        medians = {key: statistics.median(one[key] for one in rounds) for key in texts}
        print(
            f"  {name:8} on {medians['on']:6.1f} us, off {medians['off']:6.1f} us,"
            f" ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f};"
            f" to stay below: {WANTED})"
        )
    print(f"  a scrape: {cost_ms:.1f} ms of processor, {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
