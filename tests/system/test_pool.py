"""pool.socket and pool.service on a host: who starts and stops them, and what outlives that."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from tests.host.machine import Host, wait_for

WORKERS = [f"worker@{n}.service" for n in range(4)]
_APP = """
    import os

    def echo(payload, session):
        return payload

    def whoami(payload, session):
        return os.getpid()
"""
_DECLARED = """
    from cordata import App

    app = App("pooled")
    for name in ("echo", "whoami"):
        app.command(name, at=f"pooled_commands:{name}")
"""
#: Calls without a pause until it is told to end; prints how many, and each error.
_CALLER = """
    import sys
    sys.path.insert(0, "/usr/share/cordata")
    import select
    from cordata.pool import SyncClient

    count, errors = 0, []
    with SyncClient(timeout=20.0) as client:
        print("calling", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                assert client.execute("echo", count) == count
                count += 1
            except Exception as error:
                errors.append(repr(error))
    print(count, errors)
"""


@pytest.fixture(scope="module")
def pooled(host: Host) -> Iterator[Host]:
    """The host with an application that has commands."""
    files = {"pooled_commands": _APP, "pooled_app": _DECLARED, "caller": _CALLER}
    host.run("mkdir", "-p", "/opt/pooled")
    for name, text in files.items():
        host.path(f"/opt/pooled/{name}.py").write_text(textwrap.dedent(text))
    assert inactive(host, "pool.service")  # the hub alone has nobody who would connect
    host.sh("cp /etc/cordata/cordata.toml /root/cordata.toml")
    section = '[app]\\nimport = "pooled_app:app"\\npath = ["/opt/pooled"]\\n'
    host.sh(f"printf '{section}' >/etc/cordata/cordata.toml")
    host.systemctl("restart", "cordata.target")
    wait_for(lambda: len(children(host)) == 4, what="four children")
    yield host
    host.sh("cp /root/cordata.toml /etc/cordata/cordata.toml")
    host.systemctl("restart", "cordata.target")


def inactive(host: Host, unit: str) -> bool:
    return host.props(unit, "ActiveState")["ActiveState"] == "inactive"


def status(host: Host) -> Any:
    return json.loads(host.run("cordata", "pool", "status", "--json").stdout)


def children(host: Host) -> dict[str, int]:
    """Pid of each worker's child that is ready."""
    done = host.run("cordata", "pool", "status", "--json", check=False)
    found = json.loads(done.stdout)["workers"] if done.returncode == 0 else []
    return {
        worker["worker"]: child["pid"]
        for worker in found
        for child in worker["children"]
        if child["state"] == "ready"
    }


def status_text(host: Host) -> str:
    return host.props("pool.service", "StatusText")["StatusText"]


def call(host: Host, *arguments: str) -> Any:
    return json.loads(host.run("cordata", "call", *arguments).stdout)


def test_children_live_in_the_control_groups_of_their_workers(pooled: Host) -> None:
    for name, pid in children(pooled).items():
        assert f"worker@{name}.service" in pooled.sh(f"cat /proc/{pid}/cgroup")
    assert call(pooled, "echo", "--json", '{"a": [1, 2]}') == {"a": [1, 2]}
    wait_for(lambda: "4 children" in status_text(pooled), what="the status says so")


def test_no_call_fails_when_the_pool_is_restarted(pooled: Host) -> None:
    with pooled.popen("python3", "/opt/pooled/caller.py") as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "calling\n"
        pooled.systemctl("restart", "pool.service")
        wait_for(lambda: len(children(pooled)) == 4, what="four children again")
        out, _ = caller.communicate("end\n", timeout=60)
    count, _, errors = out.partition(" ")
    assert errors.strip() == "[]" and int(count) > 10


def test_sessions_outlive_the_pool_when_it_is_killed(pooled: Host) -> None:
    script = (
        "import sys; sys.path.insert(0, '/usr/share/cordata');"
        "from cordata.pool import SyncClient;"
        "client = SyncClient(timeout=20.0);"
    )
    pooled.run("python3", "-c", script + "client.sessions.create('s', data={'n': 7})")
    pooled.systemctl("kill", "--signal=KILL", "pool.service")
    found = pooled.run("python3", "-c", script + "print(client.sessions.get('s').data)").stdout
    assert found.strip() == "{'n': 7}"
    wait_for(lambda: len(children(pooled)) == 4, what="the children are back")


def test_child_dies_with_its_worker_when_that_is_killed(pooled: Host) -> None:
    before = children(pooled)
    pooled.systemctl("kill", "--kill-whom=main", "--signal=KILL", "worker@2")
    wait_for(
        lambda: children(pooled).get("2", before["2"]) != before["2"],
        what="another child of worker 2",
    )
    assert pooled.run("test", "-e", f"/proc/{before['2']}", check=False).returncode == 1


def test_pool_stops_after_the_workers_and_stays_down(pooled: Host) -> None:
    cursor = pooled.cursor()
    pooled.systemctl("stop", "cordata.target", *WORKERS, "primary.service", "pool.service")
    done = pooled.journal("JOB_TYPE=stop", "JOB_RESULT=done", since=cursor)
    stopped = [entry["UNIT"] for entry in done if entry["UNIT"].endswith(".service")]
    assert sorted(stopped[:4]) == WORKERS
    assert inactive(pooled, "pool.service")
    assert pooled.props("pool.service", "Result")["Result"] == "success"
    assert pooled.props("pool.socket", "ActiveState")["ActiveState"] == "active"
    pooled.systemctl("start", "cordata.target")
    wait_for(lambda: len(children(pooled)) == 4, what="four children")


def test_workers_serve_while_the_pool_is_kept_down(pooled: Host) -> None:
    pooled.systemctl("stop", "pool.socket", "pool.service")
    assert pooled.run("cordata", "call", "echo", "--timeout", "1", check=False).returncode == 75
    for unit in WORKERS:
        assert pooled.props(unit, "ActiveState")["ActiveState"] == "active"
    pooled.systemctl("start", "pool.socket")
    wait_for(lambda: len(children(pooled)) == 4, what="four children")


def test_reload_takes_other_limits(pooled: Host) -> None:
    pooled.sh("printf '[pool]\\nmax_waiting = 7\\n' >>/etc/cordata/cordata.toml")
    pooled.systemctl("reload", "pool.service")
    assert status(pooled)["pools"]["default"]["max_waiting"] == 7
