"""20,000 calls of 50 clients while children, workers and clients are killed -9 at random.

    python -m tests.bench.pool_chaos [CALLS] [--per-kill N] [--workers N] [--seed N] [--only WHERE]

First where the processes stand alone, as under systemd; then, a fifth of the calls, where `cordata
server` starts them. Every call has to end in a result or a typed error by its deadline; what is
idempotent succeeds; nothing else runs twice; in the end nothing is left. Exit code 1, and what went
wrong, if not so.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.integration.pool.chaos.chaos import chaos
from tests.integration.pool.chaos.house import House, house
from tests.integration.pool.chaos.served import Served, served
from tests.servers.reaper import swept, terminated_in_order

#: A supervisor waits longer and longer with what dies again and again, so it has less to do.
PLACES: dict[str, tuple[Callable[..., AbstractContextManager[House | Served]], int]] = {
    "alone": (house, 1),
    "server": (served, 5),
}
#: No kills after so long; the calls go on to their end.
_SECONDS = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", type=int, nargs="?", default=20_000)
    parser.add_argument("--per-kill", type=int, default=100, help="calls between two kills")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--only", choices=list(PLACES))
    options = parser.parse_args()
    terminated_in_order()
    wrong = 0
    for name, (place, share) in PLACES.items():
        if options.only not in (None, name):
            continue
        print(f"{name}, seed {options.seed} ...", flush=True)
        with tempfile.TemporaryDirectory(prefix="cordata-chaos-") as directory:
            try:
                told = chaos(
                    swept(Path(directory)),
                    seed=options.seed,
                    calls=options.calls // share,
                    calls_per_kill=options.per_kill,
                    workers=options.workers,
                    seconds=_SECONDS,
                    place=place,
                )
            except AssertionError as error:
                print(f"FAIL  {error}", flush=True)
                wrong = 1
            else:
                print(f"pass  {told}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
