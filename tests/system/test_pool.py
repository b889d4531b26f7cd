"""The pool on a host: children under the rules of the units, and what outlives them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.host.machine import Host, wait_for
from tests.host.package import Packages, install

from cordata import events

WORKERS = [f"worker@{n}.service" for n in range(4)]
_APP = """
    import mmap
    import os
    import subprocess

    def echo(payload, session):
        return payload

    def whoami(payload, session):
        return os.getpid()

    def nest(payload, session):
        from cordata.pool import SyncClient

        with SyncClient() as client:
            return client.execute("echo", payload)

    def leave_one_behind(payload, session):
        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid

    def make_code(payload, session):
        try:
            mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        except OSError as error:
            return type(error).__name__
        return "a page that is writable and executable"
"""
_DECLARED = """
    from cordata import App

    app = App("pooled")
    for name in ("echo", "whoami", "nest", "leave_one_behind", "make_code"):
        app.command(name, at=f"pooled_commands:{name}")

    @app.job("ask")
    async def ask(ctx, scope, period):
        await ctx.pool.execute("echo", period, timeout=30)
"""
#: Calls until it is told to end; prints how many, the longest, and each error.
_CALLER = """
    import sys
    sys.path.insert(0, "/usr/share/cordata")
    import json, select, time
    from cordata import PoolError
    from cordata.pool import SyncClient

    count, longest, errors = 0, 0.0, []
    with SyncClient(timeout=30.0) as client:
        print("calling", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            begun = time.monotonic()
            try:
                assert client.execute("echo", count, idempotent="again" in sys.argv) == count
                count += 1
            except PoolError as error:
                errors.append(error.code)
            longest = max(longest, time.monotonic() - begun)
            time.sleep(0.005)
    print(json.dumps([count, longest, errors]))
"""


@pytest.fixture(scope="module")
def pooled(host: Host) -> Iterator[Host]:
    """The host with an application that has commands."""
    files = {"pooled_commands": _APP, "pooled_app": _DECLARED, "caller": _CALLER}
    host.run("mkdir", "-p", "/opt/pooled")
    for name, text in files.items():
        host.path(f"/opt/pooled/{name}.py").write_text(textwrap.dedent(text))
    host.sh("cp /etc/cordata/cordata.toml /root/cordata.toml")
    section = '[app]\\nimport = "pooled_app:app"\\npath = ["/opt/pooled"]\\n'
    host.sh(f"printf '{section}' >/etc/cordata/cordata.toml")
    host.systemctl("restart", "cordata.target")
    wait_for(lambda: len(children(host)) == 4, what="four children")
    yield host
    host.sh("cp /root/cordata.toml /etc/cordata/cordata.toml")
    host.systemctl("restart", "cordata.target")


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
        if child["state"] in ("ready", "busy")
    }


def calls(host: Host) -> int:
    """How many the children have run."""
    return sum(child["calls"] for one in status(host)["workers"] for child in one["children"])


def call(host: Host, *arguments: str) -> Any:
    return json.loads(host.run("cordata", "call", *arguments).stdout)


def test_children_live_in_the_control_groups_of_their_workers(pooled: Host) -> None:
    for name, pid in children(pooled).items():
        assert f"worker@{name}.service" in pooled.sh(f"cat /proc/{pid}/cgroup")
    assert call(pooled, "echo", "--json", '{"a": [1, 2]}') == {"a": [1, 2]}


def test_job_calls_the_pool_under_the_units_rules(pooled: Host) -> None:
    before = calls(pooled)
    pooled.systemctl("start", "job@ask")
    assert calls(pooled) == before + 1


def test_nested_call_is_refused_under_the_units_rules_when_no_child_is_free(pooled: Host) -> None:
    assert call(pooled, "nest", "--json", "1") == 1
    for name in "123":
        pooled.run("cordata", "pool", "drain", name)
    done = pooled.run("cordata", "call", "nest", "--json", "1", check=False)
    for name in "123":
        pooled.run("cordata", "pool", "drain", name, "--undo")
    assert done.returncode == 1
    assert "[pool.NAME]" in done.stderr and "PoolSaturated" in done.stderr


def test_no_call_fails_when_workers_are_restarted_one_after_the_other(pooled: Host) -> None:
    with pooled.popen("python3", "/opt/pooled/caller.py") as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "calling\n"
        for unit in WORKERS:
            pooled.systemctl("restart", unit)
        wait_for(lambda: len(children(pooled)) == 4, what="four children again")
        out, _ = caller.communicate("end\n", timeout=60)
    count, _, errors = json.loads(out)
    assert errors == [] and count > 10


def test_member_of_the_group_calls_and_nobody_else_does(pooled: Host) -> None:
    pooled.sh("useradd --no-create-home --groups cordata anna; useradd --no-create-home bruno")
    argv = ["cordata", "call", "echo", "--json", "1", "--timeout", "5"]
    as_anna = pooled.run("setpriv", "--reuid=anna", "--regid=anna", "--init-groups", *argv)
    assert as_anna.stdout == "1\n"
    bruno = ["setpriv", "--reuid=bruno", "--regid=bruno", "--init-groups"]
    as_bruno = pooled.run(*bruno, *argv, check=False)
    assert as_bruno.returncode == 1 and "permission denied" in as_bruno.stderr
    pooled.sh("userdel anna; userdel bruno")


def test_sessions_outlive_all_workers_when_they_are_killed(pooled: Host) -> None:
    script = (
        "import sys; sys.path.insert(0, '/usr/share/cordata');"
        "from cordata.pool import SyncClient;"
        "client = SyncClient(timeout=20.0);"
    )
    pooled.run("python3", "-c", script + "client.sessions.create('s', data={'n': 7})")
    pooled.systemctl("kill", "--signal=KILL", *WORKERS)
    found = pooled.run("python3", "-c", script + "print(client.sessions.get('s').data)").stdout
    assert found.strip() == "{'n': 7}"
    wait_for(lambda: len(children(pooled)) == 4, what="the children are back")


def test_child_makes_no_code_under_the_units_rules(pooled: Host) -> None:
    assert call(pooled, "make_code") == "PermissionError"
    assert call(pooled, "echo", "--json", "1") == 1


def test_status_tells_what_children_weigh(pooled: Host) -> None:
    found = [child for worker in status(pooled)["workers"] for child in worker["children"]]
    assert len(found) == 4
    assert all(child["rss_bytes"] > 1_000_000 and child["age_s"] < 3600 for child in found)


def test_child_dies_with_its_worker_when_that_is_killed(pooled: Host) -> None:
    before = children(pooled)
    groups = {name: control_group(pooled, f"worker@{name}.service") for name in before}
    left = call(pooled, "leave_one_behind")
    [home] = [name for name, group in groups.items() if str(left) in members(pooled, group)]
    pooled.systemctl("kill", "--kill-whom=main", "--signal=KILL", f"worker@{home}")
    wait_for(
        lambda: children(pooled).get(home, before[home]) != before[home],
        what=f"another child of worker {home}",
    )
    now = members(pooled, groups[home])
    assert {str(before[home]), str(left)}.isdisjoint(now)  # not even a session of its own helps
    assert sorted(now) == sorted(
        str(pid) for pid in (pooled.main_pid(f"worker@{home}"), children(pooled)[home])
    )


def control_group(host: Host, unit: str) -> str:
    return host.props(unit, "ControlGroup")["ControlGroup"]


def members(host: Host, group: str) -> list[str]:
    """Pids in a control group."""
    return host.sh(f"cat /sys/fs/cgroup{group}/cgroup.procs").split()


def test_child_is_replaced_when_it_is_killed(pooled: Host) -> None:
    before = children(pooled)
    cursor, unit = pooled.cursor(), pooled.props("worker@2", "InvocationID")
    pooled.kill("KILL", before["2"])
    wait_for(
        lambda: children(pooled).get("2", before["2"]) != before["2"],
        what="another child of worker 2",
    )
    assert pooled.props("worker@2", "InvocationID") == unit
    [crash] = pooled.journal("MESSAGE_ID=" + events.POOL_CHILD_CRASHED, since=cursor)
    assert (crash["WORKER"], crash["CHILD_PID"]) == ("2", str(before["2"]))


def test_nothing_of_the_pool_is_left_when_the_workers_have_stopped(pooled: Host) -> None:
    pooled.systemctl("stop", "cordata.target", *WORKERS, "primary.service")
    assert pooled.sh("find /run/cordata/pool -name '*.s*'") == ""
    assert pooled.run("cordata", "call", "echo", "--timeout", "1", check=False).returncode == 75
    pooled.systemctl("start", "cordata.target")
    wait_for(lambda: len(children(pooled)) == 4, what="four children")


def test_workers_serve_without_children_where_the_service_is_left_out(pooled: Host) -> None:
    pooled.sh("cp /etc/cordata/cordata.toml /root/pooled.toml")
    pooled.sh('printf \'[worker]\\nservices = ["http", "engine"]\\n\' >>/etc/cordata/cordata.toml')
    pooled.systemctl("restart", *WORKERS)
    for unit in WORKERS:
        assert pooled.props(unit, "ActiveState")["ActiveState"] == "active"
    assert pooled.run("cordata", "call", "echo", "--timeout", "1", check=False).returncode == 75
    pooled.sh("cp /root/pooled.toml /etc/cordata/cordata.toml")
    pooled.systemctl("restart", *WORKERS)
    wait_for(lambda: len(children(pooled)) == 4, what="four children")


def test_reload_takes_other_limits(pooled: Host) -> None:
    before = children(pooled)["0"]
    pooled.sh("printf '[pool]\\nmax_calls = 3\\n' >>/etc/cordata/cordata.toml")
    pooled.systemctl("reload", *WORKERS)
    for name in "123":
        pooled.run("cordata", "pool", "drain", name)
    for number in range(5):
        assert call(pooled, "echo", "--json", str(number)) == number
    wait_for(lambda: children(pooled).get("0", before) != before, what="another child of worker 0")
    for name in "123":
        pooled.run("cordata", "pool", "drain", name, "--undo")
    pooled.sh("sed -i '/max_calls/d' /etc/cordata/cordata.toml")
    pooled.systemctl("reload", *WORKERS)


def test_every_call_ends_when_the_package_is_upgraded(
    pooled: Host, debs: Packages, tmp_path: Path
) -> None:
    pooled.run("mkdir", "-p", "/root/newer")
    for deb, path in debs.later(tmp_path).binds("/root/newer").items():
        pooled.path(path).write_bytes(deb.read_bytes())
    before = children(pooled)
    caller = ("python3", "/opt/pooled/caller.py")
    with pooled.popen(*caller, "again") as again, pooled.popen(*caller) as once:
        for one in (again, once):
            assert one.stdout is not None
            assert one.stdout.readline() == "calling\n"
        install(pooled, "/root/newer", timeout_s=120)
        wait_for(lambda: len(children(pooled)) == 4, what="four children")
        told = [json.loads(one.communicate("end\n", timeout=60)[0]) for one in (again, once)]
    assert set(before.values()).isdisjoint(children(pooled).values())
    for count, longest, errors in told:
        assert count > 10 and errors == [] and longest < 30.0
