"""20,000 calls of 50 clients while children, workers and the manager are killed -9 at random.

    python -m tests.bench.pool_chaos [CALLS] [--per-kill N] [--workers N] [--seed N] [--seconds S]

Every call has to end in a result or a typed error by its deadline; what is idempotent succeeds;
nothing else runs twice; in the end nothing is left. Exit code 1, and what went wrong, if not so.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.integration.pool.chaos.chaos import chaos
from tests.servers.reaper import swept, terminated_in_order


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", type=int, nargs="?", default=20_000)
    parser.add_argument("--per-kill", type=int, default=100, help="calls between two kills")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--seconds", type=float, default=600.0, help="no kills after so long")
    options = parser.parse_args()
    terminated_in_order()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cordata-chaos-") as directory:
        try:
            told = chaos(
                swept(Path(directory)),
                seed=options.seed,
                calls=options.calls,
                calls_per_kill=options.per_kill,
                workers=options.workers,
                seconds=options.seconds,
            )
        except AssertionError as error:
            print(f"FAIL  {error}")
            return 1
    print(f"pass  seed {options.seed}: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
