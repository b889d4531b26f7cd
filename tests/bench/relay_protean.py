"""protean's relay of an outbox, from PostgreSQL to Redis Streams: empty, and with a history.

python -m tests.bench.relay_protean [WAITING [OLD...]]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import redis
from tests.bench.engine_peers import (
    FROM,
    LONGEST_S,
    ROOT,
    TO,
    Peer,
    environment_of,
    running,
    servers_of,
)

PROTEAN = Peer(
    name="protean",
    requirements=["protean[postgresql,redis]", "psycopg[binary]"],
    worker=[
        *("{bin}/protean", "server", "--domain", "tests.bench.peers.protean_peer:domain"),
        *("--workers", "{n}"),
    ],
    servers=("postgres", "redis"),
)
STREAM = "bench::thing"


def rate(url: str, waiting: int) -> float:
    """Entries per second that arrive in the stream; 0 when it takes too long."""
    marks: dict[float, float] = {}
    deadline = time.monotonic() + LONGEST_S
    with redis.Redis.from_url(url) as client:
        while TO not in marks and time.monotonic() < deadline:
            count, now = int(client.xlen(STREAM)), time.monotonic()
            for share in (FROM, TO):
                if count >= share * waiting:
                    marks.setdefault(share, now)
            time.sleep(0.01)
    return (TO - FROM) * waiting / (marks[TO] - marks[FROM]) if TO in marks else 0.0


def measure(waiting: int, old: int, processes: int) -> float:
    """Load, start, watch."""
    venv = environment_of(PROTEAN)
    with servers_of(PROTEAN) as urls, tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "FOLDER": folder, **urls}
        program = "from tests.bench.peers.protean_peer import load_outbox; "
        load = [str(venv / "bin/python"), "-c", f"{program}load_outbox({waiting}, {old})"]
        subprocess.run(load, env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        with running(PROTEAN, venv, env, processes=processes):
            return rate(urls["REDIS_URL"], waiting)


def run(
    waiting: int = 1_000, olds: Sequence[int] = (0, 200_000), processes: int = 1
) -> dict[int, float]:
    """The rate by the number of entries that were published before."""
    found = {}
    for old in olds:
        found[old] = measure(waiting, old, processes)
        print(f"protean's relay, {old:9,} old entries {found[old]:10,.0f}/s", flush=True)
    return found


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    run(numbers[0] if numbers else 1_000, numbers[1:] or (0, 200_000))
