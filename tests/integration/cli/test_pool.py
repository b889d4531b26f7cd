"""`cordata pool status|sessions|drain|recycle` against real workers and children."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.pool.running import running
from tests.integration.cli.command import ROOT, cordata, write_config
from tests.integration.server.managed import managed
from tests.servers.reaper import watched
from tests.waiting import until

from cordata.errors import CordataError
from cordata.pool import SyncClient

APP = "tests.integration.cli.called:app"
SLOW = '[pool]\ncancel_grace_s = 0.2\n[pool.slow]\nworkers = ["1"]\ncommands = ["wait"]\n'
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a pool runs whose worker 0 has all commands but one, and worker 1 that one."""
    directory = tmp_path_factory.mktemp("pool")
    with running(directory, app=APP, workers=2, settings=SLOW):
        yield directory


@pytest.fixture
def client(home: Path) -> Iterator[SyncClient]:
    with SyncClient(home / "run" / "pool", timeout=60.0) as client:
        yield client


def pool(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cordata("pool", *arguments, "--config", str(home / "cordata.toml"))


def ask(home: Path, *arguments: str) -> Any:
    result = pool(home, *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def worker_of(home: Path, name: str) -> dict[str, Any]:
    [found] = [one for one in ask(home, "status")["workers"] if one["worker"] == name]
    return dict(found)


def test_status_shows_who_does_what_and_each_pool_its_commands(
    home: Path, client: SyncClient
) -> None:
    call = client.submit("wait", 60.0)
    try:
        running_ = until(lambda: worker_of(home, "1")["children"][0]["command"] == "wait")
        assert running_
        shown = pool(home, "status").stdout
    finally:
        call.cancel()
    assert re.search(r"^1 +slow +busy +\d+ .* wait +\d", shown, re.MULTILINE)
    assert re.search(r"^0 +default +ready +\d+ ", shown, re.MULTILINE)
    found = [line for line in shown.splitlines() if line.startswith("commands")]
    assert found[0].startswith("commands   default: about, die, echo, ")
    assert found[1] == "commands   slow: wait"
    [child] = worker_of(home, "0")["children"]
    assert child["rss_bytes"] > 1_000_000 and 0 < child["age_s"] < 3600


def test_sessions_are_listed_in_pages_without_what_they_hold(
    home: Path, client: SyncClient
) -> None:
    for id in ("a", "b", "c"):
        client.sessions.create(id, data={"name": "secret"}, ttl_s=600)
    found = ask(home, "sessions", "--limit", "2")
    assert [item["id"] for item in found["items"]] == ["a", "b"]
    assert set(found["items"][0]) >= {"bytes", "ttl_s", "expires_in_s", "affinity", "worker"}
    result = pool(home, "sessions", "--after", found["next"])
    assert "\nc " in result.stdout and "secret" not in result.stdout
    result = pool(home, "sessions", "--limit", "2")
    assert "there is more: --after b" in result.stderr
    assert pool(home, "sessions", "--limit", "0").returncode == 2
    assert re.search(r"^sessions +3 with \d+ bytes$", pool(home, "status").stdout, re.MULTILINE)
    for id in ("a", "b", "c"):
        client.sessions.delete(id)


def test_drained_worker_gets_no_calls_until_that_is_undone(home: Path, client: SyncClient) -> None:
    result = pool(home, "drain", "0")
    assert (result.returncode, result.stdout) == (0, "worker 0 gets no more calls\n")
    assert worker_of(home, "0")["drained"]
    assert re.search(r"^0 +default +\w+, drained ", pool(home, "status").stdout, re.MULTILINE)
    waiting = client.submit("echo", 1)
    time.sleep(0.2)
    assert not waiting.done()
    assert pool(home, "drain", "0", "--undo").stdout == "worker 0 gets calls again\n"
    assert waiting.result(60.0) == 1


def test_recycle_replaces_the_child(home: Path, client: SyncClient) -> None:
    [before] = worker_of(home, "0")["children"]
    told = ask(home, "recycle", "0", "--wait")
    assert told["former"] == [before["pid"]] and before["pid"] not in told["children"]
    assert client.execute("echo", 1) == 1
    result = pool(home, "recycle", "0")
    assert result.stdout == "worker 0 replaces its children as soon as new ones are warm\n"
    until(lambda: worker_of(home, "0")["children"][0]["pid"] not in told["children"])


def test_order_for_a_worker_that_is_not_there_says_so(home: Path) -> None:
    for order in ("drain", "recycle"):
        result = pool(home, order, "7")
        assert result.returncode == 75
        assert "worker 7" in result.stderr


def test_status_says_why_a_child_does_not_start_and_recycle_waits_for_one(tmp_path: Path) -> None:
    config = write_config(tmp_path, '[worker]\nservices = ["pool"]\n', app=APP)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    broken = tmp_path / "broken"
    with managed(config, "worker", "0", POOLED_BROKEN=str(broken)) as worker:
        worker.until_ready()
        until(lambda: worker_of(tmp_path, "0")["children"][0]["state"] == "ready")
        [child] = worker_of(tmp_path, "0")["children"]
        broken.touch()
        argv = [sys.executable, "-m", "cordata", "pool", "recycle", "0", "--wait"]
        popen = subprocess.Popen(
            [*argv, "--config", str(config)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with watched(popen) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("still waiting: no new child of worker 0 starts: FileExists")
            shown = pool(tmp_path, "status").stdout
            assert "\nno start   child of worker 0: FileExistsError" in shown
            broken.unlink()
            output, _ = process.communicate(timeout=60.0)
        assert re.fullmatch(r"worker 0 has child \d+\n", output)
        assert str(child["pid"]) not in output
        assert "no start" not in pool(tmp_path, "status").stdout
        assert worker.stop()[0] == 0


@pytest.mark.parametrize("stale", [False, True], ids=["none", "stale"])
def test_command_says_at_once_that_nobody_is_there(tmp_path: Path, stale: bool) -> None:
    config = write_config(tmp_path, '[worker]\nservices = ["pool"]\n', app=APP)
    if stale:  # as a killed worker leaves it
        assert cordata("migrate", "--config", str(config)).returncode == 0
        with managed(config, "worker", "0") as worker:
            worker.until_ready()
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait()
    result = cordata("pool", "drain", "0", "--json", "--config", str(config))
    assert (result.returncode, result.stdout) == (75, "")
    assert ("no process listens" if stale else "no such directory") in result.stderr
    assert "hint: start workers" in result.stderr


NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_may_look_if_the_sockets_say_so_and_give_no_orders() -> None:
    if subprocess.run([*NOBODY, sys.executable, "-c", "import click"], check=False).returncode:
        pytest.skip(f"others cannot read {sys.prefix}")

    def by_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [*NOBODY, sys.executable, "-m", "cordata", "pool", *words]
        argv += ["--config", str(place / "cordata.toml")]
        return subprocess.run(argv, env=ENVIRONMENT, cwd="/", capture_output=True, text=True)

    # Not in pytest's directory: each new session, and some tests start one, shuts that to others.
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        with running(place, app=APP, workers=1) as path:
            refused = by_nobody("status")
            assert refused.returncode == 1 and "permission denied" in refused.stderr
            for one in (path, *path.iterdir()):
                one.chmod(0o755)
            for one in path.rglob("*.sock"):
                one.chmod(0o666)
            assert by_nobody("status").returncode == 0
            ordered = by_nobody("drain", "0")
            assert ordered.returncode == 1
            assert "only root and the user of the service may do this" in ordered.stderr
            with SyncClient(path, timeout=60.0) as client:
                assert not client.status()["workers"][0]["drained"]
                with pytest.raises(CordataError):
                    client.drain("7")
