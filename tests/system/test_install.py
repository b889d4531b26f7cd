"""What an operator sees after `apt install`: the units, their order, their names, their socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.host.load import Load
from tests.host.machine import Host, find_tree, wait_for
from tests.host.package import Packages, install

WORKERS = [f"worker@{n}.service" for n in range(4)]
UNITS = ["http.socket", "primary.service", *WORKERS, "workers.target", "cordata.target"]


@pytest.fixture(scope="module")
def host(debs: Packages) -> Iterator[Host]:
    with Host(find_tree(), binds=debs.binds()) as host:
        install(host)
        yield host


def active(host: Host, *units: str) -> list[str]:
    """ActiveState of each unit."""
    return [host.props(unit, "ActiveState")["ActiveState"] for unit in units]


def test_install_starts_everything_when_it_is_the_first(host: Host) -> None:
    assert active(host, *UNITS, "daily-report.timer") == ["active"] * 9
    assert host.systemctl("--failed", "--no-legend") == ""
    assert "ready" in host.run("curl", "-fsS", "http://127.0.0.1:8080/api/ready").stdout
    unix = ["--unix-socket", "/run/cordata/http.sock", "http://localhost/api/ready"]
    assert "ready" in host.run("curl", "-fsS", *unix).stdout


def test_install_keeps_the_master_key_to_root_when_it_makes_it(host: Host) -> None:
    key = "/etc/cordata/credentials/master-key"
    assert host.sh(f"stat -c '%a %U' {key} && wc -c <{key}") == "600 root\n65"


def test_primary_is_ready_before_workers_start_when_all_start(host: Host) -> None:
    host.systemctl("stop", "http.socket", "cordata.target", *WORKERS, "primary.service")
    host.systemctl("start", "http.socket", "cordata.target")
    ready = int(host.props("primary.service", "ActiveEnterTimestampMonotonic").popitem()[1])
    starts = [host.props(unit, "InactiveExitTimestampMonotonic") for unit in WORKERS]
    assert all(ready <= int(start.popitem()[1]) for start in starts)
    assert active(host, *UNITS) == ["active"] * 8


def test_start_returns_when_all_workers_are_ready(host: Host) -> None:
    host.systemctl("stop", "cordata.target", *WORKERS, "primary.service")
    host.systemctl("start", "cordata.target")
    assert active(host, *WORKERS) == ["active"] * 4


def test_shutdown_keeps_the_order_when_the_target_is_stopped(host: Host) -> None:
    cursor = host.cursor()
    host.systemctl("stop", "cordata.target", *WORKERS, "primary.service")
    # JOB_TYPE=stop, the manager's own words: one entry per unit that it has stopped
    done = host.journal("JOB_TYPE=stop", "JOB_RESULT=done", since=cursor)
    stopped = [entry["UNIT"] for entry in done if entry["UNIT"].endswith(".service")]
    assert sorted(stopped[:4]) == WORKERS and "primary.service" in stopped[4:]
    results = {host.props(unit, "Result")["Result"] for unit in [*WORKERS, "primary.service"]}
    assert results == {"success"}
    host.systemctl("start", "cordata.target")


def test_alias_starts_and_stops_workers_when_named_workers(host: Host) -> None:
    host.run("bash", "-c", "systemctl stop workers@{1..3}")
    assert active(host, *WORKERS) == ["active", "inactive", "inactive", "inactive"]
    host.run("bash", "-c", "systemctl start workers@{0..3}")
    assert active(host, *WORKERS) == ["active"] * 4
    assert "cordata worker 2" in host.systemctl("status", "workers@2")


def test_more_workers_start_when_asked_for(host: Host) -> None:
    host.systemctl("start", "worker@4")
    assert active(host, "worker@4.service") == ["active"]
    host.systemctl("stop", "worker@4")


def connections(host: Host) -> dict[str, int]:
    """Connections that each worker has accepted; one in the backlog belongs to nobody yet."""
    lines = host.sh("ss -Htnp state established sport = :8080").splitlines()
    pids = {unit: f"pid={host.main_pid(unit)}," for unit in WORKERS}
    return {unit: sum(pid in line for line in lines) for unit, pid in pids.items()}


def test_socket_is_shared_by_all_workers_when_connections_are_kept(host: Host) -> None:
    with Load(host, connections=64, pause_s=0.05):  # says so when one has had its answer
        wait_for(lambda: sum(connections(host).values()) == 64, what="64 connections accepted")
        shares = connections(host).values()
    assert min(shares) > 0 and max(shares) <= 2 * 2 * min(shares), shares


def test_first_connection_starts_worker_0_when_all_are_stopped(host: Host) -> None:
    host.systemctl("stop", *WORKERS)
    assert "ready" in host.run("curl", "-fsS", "http://127.0.0.1:8080/api/ready").stdout
    # It answers before it is ready, which waits a moment for the child.
    only_0 = ["active", "inactive", "inactive", "inactive"]
    wait_for(lambda: active(host, *WORKERS) == only_0, what="worker@0 alone")
    host.systemctl("start", "workers.target")


def test_connection_is_refused_when_socket_and_target_are_stopped(host: Host) -> None:
    host.systemctl("stop", "http.socket", "cordata.target", *WORKERS)
    done = host.run("curl", "-sS", "http://127.0.0.1:8080/api/health", check=False)
    assert done.returncode == 7  # could not connect
    host.systemctl("start", "http.socket", "cordata.target")
    assert active(host, *UNITS) == ["active"] * 8


def test_reload_takes_new_limits_when_the_file_changed(host: Host) -> None:
    pids = [host.main_pid(unit) for unit in WORKERS]
    large = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Large: " + "x" * 4000]
    health = "http://127.0.0.1:8080/api/health"
    assert host.run(*large, health).stdout == "200"
    host.sh(
        "sed -i 's/^# max_header_bytes = .*/max_header_bytes = 2000/' /etc/cordata/cordata.toml"
    )
    host.systemctl("reload", "worker@*")
    assert host.run(*large, health).stdout == "431"
    host.sh("sed -i 's/^max_header_bytes/# max_header_bytes/' /etc/cordata/cordata.toml")
    host.systemctl("reload", "worker@*")
    assert host.run(*large, health).stdout == "200"
    assert [host.main_pid(unit) for unit in WORKERS] == pids


def test_primary_ends_with_78_and_is_not_restarted_when_a_key_is_unknown(host: Host) -> None:
    host.sh("printf '\\n[worker.3]\\nserivces = []\\n' >>/etc/cordata/cordata.toml")
    cursor = host.cursor()
    host.systemctl("restart", "primary", check=False)
    assert host.props("primary", "ExecMainStatus", "NRestarts") == {
        "ExecMainStatus": "78",
        "NRestarts": "0",
    }
    said = ["-u", "primary", "--grep=serivces: unknown key; the nearest known is services"]
    wait_for(lambda: host.journal(*said, since=cursor), what="the reason in the journal")
    host.sh("sed -i '/^\\[worker.3\\]$/,$d' /etc/cordata/cordata.toml")
    host.systemctl("start", "primary")


def test_manual_and_completion_are_there_when_installed(host: Host) -> None:
    pages = {"cordata": "worker", "cordata mail": "mail retry", "alpinehub hotel": "hotel add"}
    pages |= {"cordata.toml": "[http]", "cordata-units": "job@", "cordata-app": "@app.on"}
    for page, word in pages.items():
        assert word in host.sh(f"man {page} | cat")
    complete = (
        ". /usr/share/bash-completion/completions/cordata; "
        "COMP_WORDS=(cordata ser) COMP_CWORD=1; _cordata_completion cordata; echo ${COMPREPLY[@]}"
    )
    assert "server" in host.run("bash", "-c", complete).stdout


def test_modules_are_compiled_when_installed(host: Host) -> None:
    sources = host.sh("find /usr/share/cordata -name '*.py' | wc -l")
    assert host.sh("find /usr/share/cordata -name '*.pyc' | wc -l") == sources
