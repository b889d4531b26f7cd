"""Starts and stops what is measured: our server and its peers, each on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.servers.process import free_port
from tests.servers.reaper import watched

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 30.0
#: Settings of a small PostgreSQL server, beside those of the tests' server.
POSTGRES = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
#: Compiled modules of all checkouts, beside no source.
_COMPILED = Path(tempfile.gettempdir()) / "cordata-bench-compiled"
#: The peers' packages where the interpreter has none (packaging/build/peers); no other program has
#: them on its path.
_PEERS = os.environ.get("BENCH_PEERS", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server; `started_s` is the time from exec to its first answer or ready line."""

    name: str
    url: str
    pid: int
    started_s: float


def environment(*, checkout: Path = ROOT, peer: bool = False, **extra: str) -> dict[str, str]:
    """The caller's environment with a checkout on the module path; for a peer also its packages."""
    paths = [str(checkout / "daemon"), str(checkout), os.environ.get("PYTHONPATH", "")]
    if peer:
        paths.insert(0, _PEERS)
    # An installed package is compiled: a start that compiles says how long the source is.
    given = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    cache = {"PYTHONPYCACHEPREFIX": str(_COMPILED)}
    return given | cache | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | extra


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return at the first answer of any status. Raises: RuntimeError when the process ended."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.005)
    raise TimeoutError(f"{url} did not answer in {START_TIMEOUT_S} s")


def stop(process: subprocess.Popen[bytes], *, patience_s: float = 35.0) -> None:
    """TERM, then KILL of the process group that we started."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def running(
    name: str,
    argv: Sequence[str],
    *,
    url: str,
    log: Path,
    checkout: Path = ROOT,
    peer: bool = False,
    **extra: str,
) -> Iterator[Server]:
    """Run a server in a process group of its own until the block ends."""
    with log.open("ab") as output:
        begin = time.monotonic()
        process = watched(
            subprocess.Popen(
                argv,
                stdout=output,
                stderr=output,
                env=environment(checkout=checkout, peer=peer, **extra),
                start_new_session=True,
            )
        )
        try:
            wait_for(url, process)
            yield Server(name=name, url=url, pid=process.pid, started_s=time.monotonic() - begin)
        finally:
            stop(process)


@contextlib.contextmanager
def hub(
    scratch: Path,
    store: str = "sqlite:",
    *,
    workers: int = 4,
    broker: str = "store:",
    checkout: Path = ROOT,
    config_text: str = "",
) -> Iterator[Server]:
    """alpinehub with its demo hotel, on the embedded store or an empty database's url.

    `config_text`: further sections of its configuration.
    """
    port = free_port()
    state = scratch / "hub"
    state.mkdir(parents=True, exist_ok=True)
    config = state / "cordata.toml"
    config.write_text(
        f'[app]\nimport = "alpinehub.app:app"\n[http]\ntrusted_proxies = ["127.0.0.1"]\n'
        f'[paths]\nstate = "{state}"\n'
        f'runtime = "{state}/run"\ncredentials = "{state}/credentials"\n[log]\nlevel = "warning"\n'
        f'[store]\nurl = "{store}"\n[broker]\nurl = "{broker}"\n{config_text}'
    )
    extra = {"CORDATA_CONFIG": str(config)}
    python = [sys.executable, "-m"]
    prepare([*python, "cordata", "credentials", "init"], extra, checkout)
    argv = [*python, "cordata", "server", "--workers", str(workers)]
    argv += ["--listen", f"127.0.0.1:{port}"]
    url = f"http://127.0.0.1:{port}"
    with running(
        "cordata",
        argv,
        url=url + "/api/ready",
        log=scratch / "hub.log",
        checkout=checkout,
        peer=False,
        **extra,
    ) as server:
        prepare([*python, "alpinehub", "demo"], extra, checkout)
        yield replace(server, url=url)


def prepare(
    argv: Sequence[str], extra: dict[str, str], checkout: Path = ROOT, *, peer: bool = False
) -> None:
    """Run a command to its end. Raises: CalledProcessError."""
    env = environment(checkout=checkout, peer=peer, **extra)
    subprocess.run(argv, check=True, env=env, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def fastapi_peer(
    scratch: Path, store: str = "sqlite:", *, workers: int = 4, module: str = "peer_fastapi"
) -> Iterator[Server]:
    """The FastAPI + SQLAlchemy application under uvicorn, on SQLite or an empty database's url.

    `module`: of tests.bench, with the application; run as a program it makes the tables.
    """
    port = free_port()
    database = f"sqlite+aiosqlite:///{scratch / 'peer.db'}"
    if not store.startswith("sqlite:"):
        database = store.replace("postgresql://", "postgresql+asyncpg://")
    python = [sys.executable, "-m"]
    prepare([*python, f"tests.bench.{module}"], {"PEER_DATABASE": database}, peer=True)
    argv = [*python, "uvicorn", f"tests.bench.{module}:app"]
    argv += ["--workers", str(workers), "--port", str(port), "--no-access-log"]
    argv += ["--log-level", "warning"]
    url = f"http://127.0.0.1:{port}"
    with running(
        "FastAPI + SQLAlchemy",
        argv,
        url=url + "/api/health",
        log=scratch / "peer.log",
        peer=True,
        PEER_DATABASE=database,
    ) as server:
        yield replace(server, url=url)


def family(pid: int) -> list[int]:
    """Process ids of all descendants, the oldest first."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            for child in (thread / "children").read_text().split():
                found += [int(child), *family(int(child))]
    return sorted(found)


def pss_kb(pid: int) -> int:
    """Proportional set size: private pages plus this process's share of shared ones."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def processors() -> tuple[int, int]:
    """Ticks that all processors spent so far, and those of them that a hypervisor took away."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks), ticks[7]  # proc_stat(5)


def cpu_s(pid: int) -> float:
    """User and system time used so far, finer than /proc tells it.

    The clock's id is what clock_getcpuclockid(3) would give.
    """
    return time.clock_gettime((~pid << 3) | 2)


def spent_s(pid: int) -> float:
    """Processor time of a process and of all below it, also of those that ended there."""
    total = 0.0
    for one in [pid, *family(pid)]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ended = int(fields[13]) + int(fields[14])  # proc_pid_stat(5)
            total += cpu_s(one) + ended / os.sysconf("SC_CLK_TCK")
    return total


def command_line(pid: int) -> str:
    """The argument vector, spaces between."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
