"""Start-up time, memory and idle cost of workers and primary, beside the FastAPI application.

python -m tests.bench.footprint
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.servers import command_line, cpu_s, family, fastapi_peer, hub, pss_kb

IDLE_S = 20.0
ROUNDS = 5


def start_times(scratch: Path) -> list[float]:
    """Seconds from exec of `cordata server` to the answer of /api/ready, schema there already."""
    times = []
    for _ in range(ROUNDS):
        with hub(scratch) as server:
            times.append(server.started_s)
    return times


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        scratch = Path(name)
        times = start_times(scratch)
        print(f"first answer of /api/ready: median {statistics.median(times):.2f} s of {ROUNDS}")
        with hub(scratch) as server:
            time.sleep(3)
            processes = family(server.pid)
            before = sum(map(cpu_s, processes))
            time.sleep(IDLE_S)
            used = sum(map(cpu_s, processes)) - before
            print(f"idle, supervisor's children: {used / IDLE_S * 100:.2f} % of a core (<= 1 %)")
            for pid in processes:
                print(f"  PSS {pss_kb(pid) / 1024:5.1f} MB  {command_line(pid)[-60:]}")
        with fastapi_peer(scratch) as peer:
            time.sleep(2)
            sizes = [pss_kb(pid) / 1024 for pid in family(peer.pid)]
            print(f"FastAPI + SQLAlchemy workers: PSS {max(sizes):.1f} MB at most")


if __name__ == "__main__":
    main()
