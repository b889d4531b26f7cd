"""`cordata status` on a booted host: healthy, degraded by one fault after the other, and down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests import waiting
from tests.host.machine import Host, wait_for

WORKERS = [f"worker@{n}.service" for n in range(4)]


def looked(host: Host, *before: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and the document."""
    done = host.run(*before, "cordata", "status", "--json", check=False)
    assert done.stderr == "", done
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def texts(document: dict[str, Any]) -> str:
    return "\n".join(f"{one['part']}: {one['text']}" for one in document["reasons"])


def until(host: Host, true: Callable[[int, dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The document, once something is true of it."""

    def look() -> dict[str, Any] | None:
        code, document = looked(host)
        return document if true(code, document) else None

    return waiting.until(look, what, timeout_s=90)


def healthy(host: Host) -> dict[str, Any]:
    """Wait for it; a worker that was restarted counts as unstable for a minute."""
    return until(host, lambda code, document: code == 0, "health")


def test_fresh_host_is_healthy_and_has_every_part(hub: Host) -> None:
    document = healthy(hub)
    units = {one["unit"]: one for one in document["units"]}
    assert set(units) >= {"http.socket", "primary.service", "daily-report.timer", *WORKERS}
    for name in WORKERS:
        unit = units[name]
        assert unit["state"] == "active" and unit["wanted"] and not unit["outdated"]
        assert unit["pid"] == hub.main_pid(name) and unit["up_s"] > 0
        assert unit["watchdog_s"] == 10 and 0 <= unit["watchdog_age_s"] < 10
        assert "req/s" in unit["status"]
    assert units["daily-report.timer"]["next_s"] > 0
    assert document["primary"]["holder"].endswith(f"/{hub.main_pid('primary')}")
    assert {one["worker"] for one in document["pool"]} == {"0", "1", "2", "3"}
    assert any(one["group"].startswith("alpinehub.") for one in document["groups"])
    assert document["store"]["database"].startswith("SQLite 3")
    assert document["store"]["wal_limit_bytes"] > 0 and document["disk"]["state"] == "ok"
    assert document["mail"]["configured"] is False
    shown = hub.run("cordata", "status").stdout
    assert shown.startswith("healthy") and "daily-report.timer" in shown and "primary  " in shown
    # It became the user of the service before it opened the store.
    assert "root" not in hub.sh("stat -c %U /var/lib/cordata/*").split()


def test_crash_loop_of_a_worker_is_named(hub: Host) -> None:
    for _ in range(3):
        pid = hub.main_pid("worker@1")
        hub.run("kill", "-KILL", str(pid))
        wait_for(lambda gone=pid: hub.main_pid("worker@1") not in (0, gone), what="a new process")  # type: ignore[misc]
    code, document = looked(hub)
    assert code == 1 and "worker@1.service" in texts(document)
    assert "restart" in texts(document)
    hub.systemctl("reset-failed", "worker@1")  # the count, too


def test_service_is_not_down_when_a_drop_in_breaks_the_units_that_run(hub: Host) -> None:
    healthy(hub)
    directory = "/etc/systemd/system/worker@.service.d"
    hub.sh(f"mkdir {directory} && printf '[Service]\\nExecStart=\\n' >{directory}/broken.conf")
    hub.systemctl("daemon-reload")
    code, document = looked(hub)
    hub.sh(f"rm -r {directory}")
    hub.systemctl("daemon-reload")
    assert code == 1 and document["state"] == "degraded", document["reasons"]
    assert "worker@0.service" in texts(document) and "cordata doctor" in texts(document)
    assert set(WORKERS) <= {one["unit"] for one in document["units"]}


def test_primary_is_missed_when_it_is_stopped(hub: Host) -> None:
    healthy(hub)
    hub.systemctl("stop", "primary")
    code, document = looked(hub)
    hub.systemctl("start", "primary")
    assert code == 1 and "primary.service is inactive" in texts(document)
    assert "has released its lease" in texts(document)


def test_worker_that_is_drained_is_missed(hub: Host) -> None:
    healthy(hub)
    hub.run("cordata", "drain", "worker@2")
    code, document = looked(hub)
    hub.run("cordata", "drain", "worker@2", "--undo")
    assert code == 1 and "worker@2.service is inactive" in texts(document), document["reasons"]
    assert {one["unit"]: one["state"] for one in document["units"]}[WORKERS[2]] == "inactive"
    healthy(hub)


def test_child_that_died_is_counted_and_one_that_is_drained_is_meant_to_be_so(hub: Host) -> None:
    healthy(hub)
    [child] = json.loads(hub.sh("cordata pool status --json"))["workers"][2]["children"]
    hub.run("kill", "-KILL", str(child["pid"]))

    def replaced(_: int, document: dict[str, Any]) -> bool:
        pool = document["pool"][2]
        return bool(pool["worker"] == "2" and pool["crashed"] == 1 and pool["ready"] == 1)

    until(hub, replaced, "another child")
    hub.sh("cordata pool drain 2")
    code, document = looked(hub)
    hub.sh("cordata pool drain 2 --undo")
    assert code == 0 and document["pool"][2]["drained"] is True


def test_service_is_down_when_no_worker_runs(hub: Host) -> None:
    hub.systemctl("stop", "http.socket", "cordata.target", "worker@*.service", "primary.service")
    code, document = looked(hub)
    hub.systemctl("start", "http.socket", "cordata.target")
    assert code == 2 and "no worker runs" in texts(document)
    assert document["store"] and document["groups"]  # the other parts are there


def test_processes_are_outdated_when_a_newer_version_was_installed(hub: Host) -> None:
    healthy(hub)
    # What an installation does to a file, without the restart after it.
    module = "/usr/share/cordata/cordata/__init__.py"
    hub.sh(f"cp -p {module} {module}.new && mv {module}.new {module}")
    code, document = looked(hub)
    assert code == 1 and "worker@0.service" in texts(document)
    assert "`cordata rolling-restart`" in texts(document)
    hub.run("cordata", "rolling-restart")
    healthy(hub)


def test_other_user_is_told_what_they_may_not_see(hub: Host) -> None:
    code, document = looked(hub, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert code == 1 and set(document["errors"]) <= {"store", "pool"}
    assert document["units"] and document["store"] is None
    assert "may not look into /var/lib/cordata: run it as root" in document["errors"]["store"]
