"""Killed, hung, restarted, under load: nobody is refused, only what was in hand is lost.

The bounds are those of the product, times two for a busy machine.
"""

from __future__ import annotations

import time

import pytest
from tests.host.load import Load, booking_load
from tests.host.machine import Host, wait_for

WORKERS = [f"worker@{n}.service" for n in range(4)]
CONNECTIONS = 16
#: RestartSec + 2 s, times two.
BACK_S = 2 * (0.5 + 2.0)
#: Four starts at once: each takes a second of processor time with its child, beside the load.
ALL_BACK_S = BACK_S + 4 * 1.0


def main_pids(host: Host, *units: str) -> list[int]:
    """Main process of each unit that is active, 0 for the others."""
    text = host.systemctl("show", "-pActiveState,MainPID", *units)
    blocks = [dict(line.split("=") for line in block.splitlines()) for block in text.split("\n\n")]
    return [int(b["MainPID"]) if b["ActiveState"] == "active" else 0 for b in blocks]


def up_pids(host: Host, *units: str) -> list[int]:
    """Main process of each unit, once all are active."""
    pids: list[int] = []

    def all_up() -> bool:
        pids[:] = main_pids(host, *units)
        return all(pids)

    wait_for(all_up, what="all are up")
    return pids


def back(host: Host, units: list[str], before: list[int]) -> bool:
    """All units are active with other processes than before."""
    now = main_pids(host, *units)
    return all(now) and not set(now) & set(before)


def next_primary_s(host: Host, before: list[int]) -> float:
    """Seconds until another primary is ready."""
    return wait_for(lambda: back(host, ["primary"], before), what="the next primary")


@pytest.mark.parametrize("victims", [WORKERS[2:3], WORKERS], ids=["one", "all"])
def test_worker_comes_back_when_it_is_killed(hub: Host, victims: list[str]) -> None:
    before = up_pids(hub, *victims)
    with booking_load(hub, connections=CONNECTIONS) as load:
        hub.run("kill", "-KILL", *before)
        took_s = wait_for(lambda: back(hub, victims, before), timeout_s=20, what="the restart")
        time.sleep(0.5)
    assert took_s <= (BACK_S if len(victims) == 1 else ALL_BACK_S)
    assert load.counts["ok"] > CONNECTIONS
    # At most one request on each connection was in hand; none was refused or refused an answer.
    assert set(load.failed) <= {"lost"} and load.counts.get("lost", 0) <= CONNECTIONS


def test_worker_comes_back_when_it_hangs(hub: Host) -> None:
    before = up_pids(hub, "worker@1")
    cursor = hub.cursor()
    with booking_load(hub, connections=CONNECTIONS) as load:
        hub.kill("STOP", before[0])
        took_s = wait_for(lambda: back(hub, ["worker@1"], before), timeout_s=40, what="the restart")
    # WatchdogSec=10, and the time in which the ABRT is answered
    assert took_s <= 10 + BACK_S
    assert set(load.failed) <= {"lost"} and load.counts.get("lost", 0) <= CONNECTIONS
    text = " ".join(e["MESSAGE"] for e in hub.journal("-u", "worker@1", since=cursor))
    assert "Watchdog timeout" in text and "most recent call first" in text


def test_nothing_fails_when_all_workers_are_restarted(hub: Host) -> None:
    before = main_pids(hub, *WORKERS)
    with booking_load(hub, connections=CONNECTIONS) as load:
        hub.systemctl("restart", "worker@*")
    assert back(hub, WORKERS, before)
    assert load.failed == {} and load.counts["ok"] > CONNECTIONS


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "new"])
def test_nothing_fails_when_workers_are_restarted_one_by_one(hub: Host, keep: bool) -> None:
    with booking_load(hub, connections=CONNECTIONS, keep=keep) as load:
        for unit in WORKERS:
            hub.systemctl("restart", unit)
    assert load.failed == {} and load.counts["ok"] > CONNECTIONS


def test_nothing_fails_when_workers_are_reloaded(hub: Host) -> None:
    before = main_pids(hub, *WORKERS)
    with booking_load(hub, connections=CONNECTIONS) as load:
        hub.systemctl("reload", "worker@*")
    assert load.failed == {} and main_pids(hub, *WORKERS) == before


def test_nothing_fails_when_the_whole_target_is_restarted(hub: Host) -> None:
    with booking_load(hub, connections=CONNECTIONS) as load:
        hub.systemctl("restart", "cordata.target")
    assert load.failed == {} and load.counts["ok"] > CONNECTIONS


def test_workers_serve_on_when_the_primary_is_killed(hub: Host) -> None:
    with booking_load(hub, connections=CONNECTIONS) as load:
        for _ in range(3):
            before = up_pids(hub, "primary")
            hub.kill("KILL", before[0])
            assert next_primary_s(hub, before) <= 2 * 2.0
    assert load.failed == {} and load.counts["ok"] > CONNECTIONS
    # Each with a term of its own, and nothing done twice: each version is in the history once, and
    # each event was handled.
    elected = hub.journal("MESSAGE_ID=43bd3d77241b42a28289efd0bba0b974")
    terms = [int(entry["TERM"]) for entry in elected]
    assert terms == sorted(set(terms)) and len(terms) >= 4
    sql = (
        "SELECT (SELECT count(*) FROM reservation_version)"
        ", (SELECT count(*) FROM reservation_history), (SELECT count(*) FROM message)"
    )

    def figures() -> list[str]:
        query = ["sqlite3", "-readonly", "/var/lib/cordata/cordata.db", sql]
        return hub.run(*query).stdout.strip().split("|")

    def handled() -> bool:
        versions, lines, waiting = figures()
        return versions == lines and waiting == "0"

    wait_for(handled, what="each event handled")


def test_requests_wait_when_no_worker_can_start_for_a_while(hub: Host) -> None:
    hub.sh("printf '#!/bin/sh\\nexit 1\\n' >/run/broken && chmod 755 /run/broken")
    hub.sh("mkdir -p /run/systemd/system/worker@.service.d")
    drop_in = "/run/systemd/system/worker@.service.d/broken.conf"
    hub.sh(f"printf '[Service]\\nExecStart=\\nExecStart=/run/broken\\n' >{drop_in}")
    hub.systemctl("daemon-reload")
    hub.systemctl("stop", "worker@*")
    with_curl = hub.popen("curl", "-sS", "-m", "60", "http://127.0.0.1:8080/api/ready")
    wait_for(lambda: int(hub.props("worker@0", "NRestarts")["NRestarts"]) >= 4, what="crashes")
    hub.sh(f"rm {drop_in} && systemctl daemon-reload && systemctl start workers.target")
    out, err = with_curl.communicate(timeout=60)
    assert with_curl.returncode == 0, err
    assert "ready" in out and hub.props("http.socket", "Result")["Result"] == "success"


CONFIG = "/etc/cordata/cordata.toml"
READY = ["curl", "-sS", "-m", "20", "-w", "%{http_code}", "http://127.0.0.1:8080/api/ready"]
BROKEN = f"echo '[http' >>{CONFIG}"
MENDED = f"sed -i '/^\\[http$/d' {CONFIG}"


@pytest.mark.parametrize("unit", ["worker@1", "primary"])
def test_reload_fails_and_the_old_settings_go_on_when_the_file_is_broken(
    hub: Host, unit: str
) -> None:
    hub.systemctl("start", unit)
    before = hub.main_pid(unit)
    hub.sh(BROKEN)
    try:
        done = hub.run("systemctl", "reload", unit, check=False)
        assert done.returncode == 1 and f"Job for {unit}.service failed" in done.stderr
        assert hub.props(unit, "ActiveState", "MainPID") == {
            "ActiveState": "active",
            "MainPID": str(before),
        }
        assert hub.run(*READY).stdout.endswith("200")
    finally:
        hub.sh(MENDED)
    hub.systemctl("reload", unit)
    assert hub.main_pid(unit) == before


def test_workers_answer_503_and_nothing_spins_when_all_restart_with_a_broken_file(
    hub: Host,
) -> None:
    hub.sh(BROKEN)
    try:
        hub.systemctl("restart", *WORKERS, "primary", check=False)
        codes = {hub.run(*READY).stdout[-3:] for _ in range(20)}
        assert codes == {"503"}
        assert main_pids(hub, *WORKERS).count(0) == 0
        shown = {hub.props(unit, "NRestarts")["NRestarts"] for unit in WORKERS}
        assert shown == {"0"}
        status = hub.props("worker@0", "StatusText")["StatusText"]
        assert "answering 503, the configuration is invalid" in status and CONFIG in status
        assert hub.props("primary", "ActiveState", "ExecMainStatus", "NRestarts") == {
            "ActiveState": "failed",
            "ExecMainStatus": "78",
            "NRestarts": "0",
        }
        # Nothing is started again, whoever asks.
        cursor = hub.cursor()
        assert {hub.run(*READY).stdout[-3:] for _ in range(20)} == {"503"}
        time.sleep(3)  # longer than any RestartSec=
        assert hub.journal("JOB_TYPE=start", since=cursor) == []
        assert hub.run("systemctl", "reload", "worker@0", check=False).returncode == 1
        assert hub.run(*READY).stdout.endswith("503")
    finally:
        hub.sh(MENDED)
    before = main_pids(hub, *WORKERS)
    hub.systemctl("start", "primary")
    hub.systemctl("reload", "worker@*")
    assert main_pids(hub, *WORKERS) == before
    assert hub.run(*READY).stdout.endswith("200")


def test_nothing_fails_when_one_worker_is_killed_while_the_file_is_broken(hub: Host) -> None:
    hub.sh(BROKEN)
    try:
        before = up_pids(hub, "worker@2")
        hub.kill("KILL", before[0])
        wait_for(lambda: back(hub, ["worker@2"], before), what="the restart")
        with booking_load(hub, connections=CONNECTIONS) as load:
            time.sleep(2)
        assert load.failed == {} and load.counts["ok"] > CONNECTIONS
    finally:
        hub.sh(MENDED)
    hub.systemctl("reload", "worker@2")
    assert hub.props("worker@2", "StatusText")["StatusText"].startswith("ready")


def test_alert_is_in_the_journal_when_a_worker_was_killed(hub: Host) -> None:
    cursor = hub.cursor()
    hub.kill("KILL", up_pids(hub, "worker@3")[0])
    alert = "alert@worker@3.service.service"
    wait_for(lambda: hub.journal("_SYSTEMD_UNIT=" + alert, since=cursor), what="the alert")
    with Load(hub, count=1):
        wait_for(lambda: hub.main_pid("worker@3"), what="the restart")
