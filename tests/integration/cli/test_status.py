"""`cordata status` of a real `cordata server`: healthy, degraded, down; each part for itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.contract.pool.running import running
from tests.integration.cli.command import ROOT, cordata, write_config
from tests.integration.cli.mended import MENDED
from tests.integration.cli.mending import app
from tests.integration.cli.service import poll
from tests.integration.cli.test_operator import prepared, published
from tests.integration.server.running import forked_server
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port
from tests.servers.reaper import watched
from tests.servers.redis import RedisServer

from cordata import connect
from cordata.context import runtime_store
from cordata.process import ProcessLease, this_process

PARTS = {"units", "processes", "primary", "groups", "blocked", "jobs", "mail", "alerts", "store"}
PARTS |= {
    "http",
    "handled",
    "redis_away",
    "pool",
    "disk",
    "errors",
    "state",
    "reasons",
    "version",
    "host",
    "systemd",
    "unavailable",
}


def looked(config: Path) -> tuple[int, dict[str, Any]]:
    """Exit code, and the document."""
    done = cordata("status", "--json", "--config", str(config))
    assert done.stderr == "", done
    document: dict[str, Any] = json.loads(done.stdout)
    assert set(document) == PARTS
    assert document["state"] == ("healthy", "degraded", "down")[done.returncode]
    assert (document["state"] == "healthy") == (document["reasons"] == [])
    return done.returncode, document


def texts(document: dict[str, Any]) -> str:
    return "\n".join(f"{one['part']}: {one['text']}" for one in document["reasons"])


def settled(config: Path, code: int) -> dict[str, Any]:
    """The document, once the exit code is this one: on a busy machine a part may take longer than
    the command waits for it.
    """
    return poll(lambda: looked(config), lambda found: found[0] == code)[1]


def until(config: Path, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The document, once something is true of it."""
    return poll(lambda: looked(config)[1], true)


def join_from_elsewhere(config: Path) -> None:
    """A process of another host joins the store."""

    async def main() -> None:
        async with connect(app, config) as ctx:
            process = replace(this_process("worker-7"), host="elsewhere")
            await ProcessLease(runtime_store(ctx), process, lease_s=60).renew()

    asyncio.run(main())


def test_server_is_healthy_then_degraded_then_down(state: Path) -> None:
    config = prepared(state)
    code, before = looked(config)
    assert code == 2 and before["reasons"][0]["part"] == "store"
    environment = {MENDED: str(state / "mended")}
    options = ("--config", str(config), "--no-preload")
    with forked_server(None, *options, app=None, environment=environment) as running_server:
        running_server.ready()
        document = settled(config, 0)
        here = socket.gethostname()
        names = [(one["name"], one["host"], one["alive"]) for one in document["processes"]]
        assert names == [("worker-0", here, True), ("worker-1", here, True)]
        assert document["primary"]["holder"] == f"{here}/{running_server.pid_of('primary')}"
        assert document["primary"]["term"] >= 1 and document["disk"]["state"] == "ok"
        assert {one["group"] for one in document["groups"]} == {"shop.pack", "shop.thank"}
        shown = cordata("status", "--config", str(config))
        assert shown.returncode == 0 and shown.stdout.startswith("healthy   cordata ")
        assert "worker-1  " in shown.stdout and "shop.pack" in shown.stdout

        join_from_elsewhere(config)
        processes = looked(config)[1]["processes"]
        assert [one for one in processes if one["host"] != here] == [
            {"name": "worker-7", "host": "elsewhere", "pid": os.getpid(), "alive": True}
        ]

        published(config, 2)
        document = until(config, lambda found: "shop.pack: 2 dead letters" in texts(found))
        assert document["state"] == "degraded"
        [group] = [one for one in document["groups"] if one["group"] == "shop.pack"]
        assert (group["dead"], group["ready"], group["claimed"]) == (2, 0, 0)

        running_server.signal(signal.SIGTERM)
        assert running_server.wait() == 0
    code, document = looked(config)
    assert code == 2 and "no process runs" in texts(document)
    assert "has released its lease" in texts(document)


def test_primary_is_missed_when_it_was_killed(state: Path) -> None:
    config = prepared(state)
    environment = {MENDED: str(state / "mended")}
    with forked_server(None, "--config", str(config), app=None, environment=environment) as one:
        one.ready()
        pid = one.pid_of("primary")
        os.kill(pid, signal.SIGKILL)
        one.until_logged(r"primary \(pid \d+\) was killed by SIGKILL")
        document = looked(config)[1]
    assert f"there is no primary: {socket.gethostname()}/{pid} has ended" in texts(document)


def test_store_is_named_when_it_does_not_answer(tmp_path: Path) -> None:
    port = free_port()
    config = write_config(tmp_path, f'[store]\nurl = "postgresql://a@127.0.0.1:{port}/a"\n')
    code, document = looked(config)
    assert code == 2 and document["reasons"][0]["part"] == "store", document
    # The others are there.
    assert document["disk"]["free_bytes"] > 0 and document["pool"] == []


def test_reason_has_the_next_step_when_there_is_no_store(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    (tmp_path / "state").rmdir()
    code, document = looked(config)
    assert code == 2 and "--state-dir DIR" in texts(document), document


def test_part_is_bounded_in_time_when_the_store_accepts_and_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config = write_config(tmp_path, f'[store]\nurl = "postgresql://a@127.0.0.1:{port}/a"\n')
        document = until(config, lambda found: found["unavailable"] == ["store"])
    assert document["state"] == "down" and document["disk"], document


def test_service_is_down_when_its_database_stops(tmp_path: Path) -> None:
    with PostgresServer() as postgres:
        text = f'[store]\nurl = "{postgres.url(postgres.create_database())}"\n'
        config = write_config(tmp_path, text)
        with forked_server(None, "--config", str(config), app=None) as running_server:
            running_server.ready()
            settled(config, 0)
            postgres.stop()
            document = settled(config, 2)
            assert document["reasons"][0]["part"] == "store", document


def test_service_is_degraded_while_redis_is_away(tmp_path: Path) -> None:
    with RedisServer() as redis:
        config = write_config(tmp_path, f'[broker]\nurl = "{redis.url}"\n')
        with forked_server(None, "--config", str(config), app=None) as running_server:
            running_server.ready()
            assert looked(config)[1]["redis_away"] == []  # also before the first tick
            settled(config, 0)
            redis.stop()
            document = settled(config, 1)
            assert "redis: events of worker@0" in texts(document), document
            redis.start()
            settled(config, 0)


def test_pool_without_children_that_take_calls_is_named(tmp_path: Path) -> None:
    with running(tmp_path, app="tests.integration.cli.called:app", workers=1):
        config = tmp_path / "cordata.toml"
        document = looked(config)[1]
        assert [(one["worker"], one["ready"]) for one in document["pool"]] == [("0", 1)]
        # `cordata migrate` had the lease for a moment; no primary runs here.
        assert [one["part"] for one in document["reasons"]] == ["primary"]
        drained = cordata("pool", "drain", "0", "--config", str(config))
        assert drained.returncode == 0
        assert looked(config)[1]["pool"][0]["drained"] is True


def test_worker_of_the_pool_that_does_not_answer_hides_no_other(tmp_path: Path) -> None:
    with running(tmp_path, app="tests.integration.cli.called:app", workers=2):
        config = tmp_path / "cordata.toml"
        words = ("--json", "--config", str(config))
        pids = {
            one["worker"]: one["pid"]
            for one in json.loads(cordata("pool", "status", *words).stdout)["workers"]
        }
        os.kill(pids["0"], signal.SIGSTOP)
        try:
            # Each waits as long as it may for the one that is silent.
            with ThreadPoolExecutor() as threads:
                status = threads.submit(looked, config)
                shown = threads.submit(cordata, "status", "--config", str(config))
                listing = threads.submit(cordata, "pool", "status", *words)
            document = status.result()[1]
            states = [(one["worker"], one["answers"], one["ready"]) for one in document["pool"]]
            assert states == [("0", False, 0), ("1", True, 1)]
            assert "pool: worker 0 does not answer" in texts(document)
            assert "0 (no answer) " in shown.result().stdout
            listed = json.loads(listing.result().stdout)
            assert [one["answers"] for one in listed["workers"]] == [False, True]
            assert listed["sessions"]["count"] == 0
            os.kill(pids["1"], signal.SIGSTOP)
            nobody = cordata("pool", "status", "--config", str(config))
            assert nobody.returncode == 75, nobody
            assert nobody.stderr == "error: no worker answers: see the log\n"
        finally:
            for pid in pids.values():
                os.kill(pid, signal.SIGCONT)
        assert [one["answers"] for one in looked(config)[1]["pool"]] == [True, True]


def test_mistake_of_the_configuration_is_a_reason_and_hides_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path, "[http]\nmax_headerz = 1\n")
    assert cordata("migrate", "--config", str(config)).returncode == 78
    _, document = looked(config)
    assert "max_headerz: unknown key" in texts(document) and document["disk"]


def test_watch_is_refused_without_a_terminal(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    done = cordata("status", "--watch", "--config", str(config))
    assert done.returncode == 2 and "--watch needs a terminal" in done.stderr


def test_watch_draws_until_it_is_interrupted(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    command = f"exec {sys.executable} -m cordata status --watch --config {config}"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", "TERM": "xterm"}
    # script(1) gives it a terminal; 3 is Ctrl-C. exec: a shell would get that, too.
    with watched(
        subprocess.Popen(
            ["script", "-qefc", command, "/dev/null"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    ) as process:
        assert process.stdin and process.stdout
        seen = b""
        while seen.count(b"cordata 0.") < 2:
            read = os.read(process.stdout.fileno(), 4096)
            assert read, seen
            seen += read
        process.stdin.write(b"\x03")
        process.stdin.flush()
        process.stdout.read()
        assert process.wait(60) == 0
