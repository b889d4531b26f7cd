"""Other task queues handling 400-byte no-op messages that wait in Redis or PostgreSQL.

Each peer has an environment of its own, made once: some of them do not agree on a redis-py.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers import tally
from tests.bench.servers import stop
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched
from tests.servers.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
#: The rate is that between these shares of the messages: without start and end.
FROM, TO = 0.2, 0.9
LONGEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """How to install, load and run one."""

    name: str
    requirements: Sequence[str]
    #: Command line; `{python}` and `{bin}` of its environment, `{n}` processes (one if not there).
    worker: Sequence[str]
    messages: int = 10_000
    #: What it needs: `URL` is that of the first, `REDIS_URL` that of a Redis beside PostgreSQL.
    servers: Sequence[str] = ("redis",)


PEERS = [
    Peer(
        name="taskiq",
        requirements=["taskiq", "taskiq-redis", "hiredis", "uvloop"],
        worker=[
            *("{bin}/taskiq", "worker", "--workers", "{n}", "--max-async-tasks", "100"),
            "tests.bench.peers.taskiq_peer:broker",
        ],
    ),
    Peer(
        name="dramatiq",
        requirements=["dramatiq[redis]", "hiredis"],
        worker=["{bin}/dramatiq", "-p", "{n}", "-t", "8", "tests.bench.peers.dramatiq_peer"],
    ),
    Peer(
        name="huey",
        requirements=["huey", "redis", "hiredis"],
        worker=[
            *("{bin}/huey_consumer", "tests.bench.peers.huey_peer.huey"),
            *("-w", "{n}", "-k", "process"),
        ],
    ),
    Peer(
        name="procrastinate",
        requirements=["procrastinate", "psycopg[binary]"],
        worker=["{python}", "-m", "tests.bench.peers.procrastinate_peer"],
        messages=3_000,
        servers=("postgres",),
    ),
]


def environment_of(peer: Peer) -> Path:
    """The directory of the peer's virtual environment."""
    done = subprocess.run(
        [ROOT / "packaging/build/venv-of", peer.name, *peer.requirements],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(done.stdout.strip())


@contextmanager
def running(peer: Peer, venv: Path, env: dict[str, str], *, processes: int) -> Iterator[None]:
    """Its processes, in a session of their own; all gone at the end."""
    names = {"python": str(venv / "bin/python"), "bin": str(venv / "bin"), "n": str(processes)}
    process = watched(
        subprocess.Popen(
            [word.format(**names) for word in peer.worker],
            env=env,
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    )
    try:
        yield
    finally:
        stop(process, patience_s=5)


def rate(path: Path, messages: int) -> float:
    """Messages per second between FROM and TO of them; 0 when it takes too long."""
    watched, marks = tally.Tally(str(path)), dict[float, float]()
    deadline = time.monotonic() + LONGEST_S
    while TO not in marks and time.monotonic() < deadline:
        count, now = watched.total(), time.monotonic()
        for share in (FROM, TO):
            if count >= share * messages:
                marks.setdefault(share, now)
        time.sleep(0.005)
    if TO not in marks:
        return 0.0
    return (TO - FROM) * messages / (marks[TO] - marks[FROM])


@contextmanager
def servers_of(peer: Peer) -> Iterator[dict[str, str]]:
    """New, empty ones, as the environment names them."""
    with ExitStack() as stack:
        urls = {}
        if "redis" in peer.servers:
            urls["URL"] = urls["REDIS_URL"] = stack.enter_context(RedisServer()).url
        if "postgres" in peer.servers:
            postgres = stack.enter_context(PostgresServer(durable=True))
            urls["URL"] = postgres.url(postgres.create_database())
        yield urls


def measure(peer: Peer, processes: int, urls: dict[str, str]) -> float:
    """Load, start, watch."""
    venv = environment_of(peer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tally"
        tally.make(path)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TALLY": str(path), **urls}
        program = f"from tests.bench.peers.{peer.name}_peer import load; load({peer.messages})"
        load = [str(venv / "bin/python"), "-c", program]
        subprocess.run(load, env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        with running(peer, venv, env, processes=processes):
            return rate(path, peer.messages)


def run(names: Sequence[str], counts: Sequence[int] = (1, 4)) -> dict[str, dict[int, float]]:
    """The rates of the peers by name and number of processes."""
    found: dict[str, dict[int, float]] = {}
    for peer in PEERS:
        if peer.name not in names:
            continue
        for processes in counts:
            with servers_of(peer) as urls:
                value = measure(peer, processes, urls)
            found.setdefault(peer.name, {})[processes] = value
            print(f"{peer.name:14} {processes} {value:10,.0f}/s", flush=True)
    return found
