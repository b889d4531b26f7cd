"""`cordata doctor` on a booted host: fresh, with broken drop-ins, and for other users."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.host.machine import Host

DROP_IN = "/etc/systemd/system/{}.d/broken.conf"

Found = list[dict[str, str]]


def examined(host: Host, *before: str) -> tuple[int, Found]:
    done = host.run(*before, "cordata", "doctor", "--json", check=False)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document["checks"]


def of(found: Found, *states: str) -> list[tuple[str, str]]:
    return [(one["check"], one["fix"]) for one in found if one["state"] in states]


def written(host: Host, text: str, unit: str = "worker@.service") -> None:
    path = DROP_IN.format(unit)
    host.sh(f"mkdir -p $(dirname {path}) && printf '%s\\n' '{text}' >{path}")


def removed(host: Host, unit: str = "worker@.service") -> None:
    host.sh(f"rm -r $(dirname {DROP_IN.format(unit)})")
    host.systemctl("daemon-reload")


def test_only_mail_is_left_to_do_when_the_host_is_fresh(host: Host) -> None:
    code, found = examined(host)
    assert code == 0 and of(found, "failed") == [], found
    assert of(found, "warning") == [
        ("mail", '[mail] host = "..." in cordata.toml'),
        ("mail", '[alert] to = ["..."] in cordata.toml'),
    ]
    good = {name for name, _ in of(found, "ok")}
    assert good >= {
        *("configuration", "application", "systemd", "units", "limits", "sockets", "permissions"),
        *("disk", "zones", "secrets", "store", "wal", "schema", "data", "broker"),
    }
    # It became the user of the service before it opened the store.
    assert "root" not in host.sh("stat -c %U /var/lib/cordata/*").split()


@pytest.mark.parametrize(
    ("text", "check", "state", "said"),
    [
        ("[Service]\nExecStart=", "units", "failed", "Service has no ExecStart="),
        ("[Service]\nNonBlocking=no", "units", "failed", "remove NonBlocking="),
        ("[Service]\nLimitNofile=9", "units", "warning", "correct that file"),
        ("[Service]\nLimitNOFILE=100", "limits", "warning", "LimitNOFILE=2000"),
        ("[Service]\nTimeoutStopSec=5", "limits", "warning", "TimeoutStopSec="),
    ],
)
def test_drop_in_that_breaks_a_unit_is_named(
    host: Host, text: str, check: str, state: str, said: str
) -> None:
    written(host, text)
    host.systemctl("daemon-reload")
    code, found = examined(host)
    removed(host)
    about = [one for one in found if (one["check"], one["state"]) == (check, state)]
    assert about and all(said in one["fix"] + one["text"] for one in about), found
    assert check != "units" or len(about) == 1
    assert code == (1 if state == "failed" else 0)
    # The others answer as before.
    assert ("store", "") in of(found, "ok") and ("schema", "") in of(found, "ok")


def test_backlog_that_the_kernel_cuts_is_named(host: Host) -> None:
    written(host, "[Socket]\nBacklog=1000000", "http.socket")
    host.systemctl("daemon-reload")
    code, found = examined(host)
    removed(host, "http.socket")
    assert code == 0
    assert ("limits", "sysctl -w net.core.somaxconn=1000000, and in /etc/sysctl.d") in of(
        found, "warning"
    )


def test_backups_are_missed_until_their_timer_is_enabled(host: Host) -> None:
    def about() -> list[str]:
        return [one["state"] for one in examined(host)[1] if one["check"] == "backup"]

    assert about() == ["skipped"]
    host.systemctl("enable", "--now", "cordata-backup.timer")
    assert about() == ["ok"]
    host.systemctl("stop", "cordata-backup.timer")
    assert about() == ["warning"]
    host.systemctl("disable", "cordata-backup.timer")


def test_reload_is_asked_for_when_a_file_is_newer_than_what_runs(host: Host) -> None:
    written(host, "[Service]\nLimitNOFILE=9000")
    code, found = examined(host)
    removed(host)
    assert code == 0 and ("units", "systemctl daemon-reload") in of(found, "warning")


def test_program_on_the_port_is_named_when_the_socket_cannot_listen(host: Host) -> None:
    host.systemctl("stop", "http.socket", "cordata.target", "worker@*.service", "primary.service")
    host.run("systemd-run", "--unit=taken", "python3", "-m", "http.server", "8080")
    host.run("sh", "-c", "until ss -Hltn sport = :8080 | grep -q .; do sleep 0.05; done")
    _, found = examined(host)
    host.systemctl("stop", "taken")
    texts = [one["text"] for one in found if one["check"] == "sockets"]
    assert any("python3 (pid " in text and ":8080" in text for text in texts), texts
    host.systemctl("start", "http.socket", "cordata.target")
    assert examined(host)[0] == 0


def test_file_of_root_in_the_state_is_named_with_its_fix(host: Host) -> None:
    host.sh("touch /var/lib/cordata/copied && chmod 600 /var/lib/cordata/copied")
    code, found = examined(host)
    assert code == 1
    assert of(found, "failed") == [("permissions", "chown cordata: /var/lib/cordata/copied")]
    host.sh("rm /var/lib/cordata/copied")


def test_what_only_root_sees_is_skipped_for_others(host: Host) -> None:
    code, found = examined(host, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert code == 0, found
    asked = {name for name, fix in of(found, "skipped") if fix == "run it as root"}
    assert asked >= {"permissions", "secrets", "store"}


def test_report_has_units_and_journal_and_no_master_key(host: Host) -> None:
    key = host.sh("cat /etc/cordata/credentials/master-key")
    host.run("cordata", "report-bug", "/root/report.tar.gz")
    assert host.sh("stat -c '%a %U' /root/report.tar.gz") == "600 root"
    text = host.sh("tar xzOf /root/report.tar.gz")
    assert key not in text
    assert "Id=primary.service\n" in text and "ActiveState=active\n" in text
    assert "cordata primary[" in text or "primary" in text.partition("journal")[2]
    assert '"unit": "worker@0.service"' in text and '"state": "ok"' in text
    assert "alpinehub 0." in text and "systemd 257" in text
    host.sh("rm /root/report.tar.gz")
