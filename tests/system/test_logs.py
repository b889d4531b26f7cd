"""`cordata logs` on a booted host: units, requests, levels, systemd's own lines, new entries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.host.load import BOOKING
from tests.host.machine import Host, wait_for

REQUEST = "5a1de3c0f4b24c4f"
REFUSED = (
    f"curl -sS -o /dev/null -H 'X-Request-ID: {REQUEST}' -H 'X-Webhook-Secret: wrong'"
    " -d '{}' http://127.0.0.1:8080/api/webhook/generic"
)

Entries = list[dict[str, Any]]


def shown(host: Host, *arguments: str) -> Entries:
    lines = host.run("cordata", "logs", "--json", *arguments).stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_units_of_the_runtime_and_what_systemd_says_of_them_are_shown(host: Host) -> None:
    host.systemctl("restart", "worker@1")
    entries = shown(host, "--since", "5m")
    assert {entry["unit"] for entry in entries} >= {"worker@0", "worker@1", "primary"}
    of_one = shown(host, "--worker", "1", "--since", "5m")
    assert {entry["unit"] for entry in of_one} == {"worker@1"}
    assert [one["message"] for one in of_one if one["logger"] == "systemd"][-1].startswith(
        "Started"
    )
    assert {one["unit"] for one in shown(host, "--primary", "--unit", "worker@1")} == {
        "primary",
        "worker@1",
    }
    assert [one["at"] for one in entries] == sorted(one["at"] for one in entries)


def test_lines_are_the_last_ones_as_text(host: Host) -> None:
    whole = shown(host, "--since", "1h")
    assert shown(host, "-n", "3") == whole[-3:]
    assert shown(host, "--since", "1h", "-n", "2") == whole[-2:]
    assert shown(host, "--since", "3000w", "-n", "2") == whole[-2:]  # before 1970
    (line,) = host.run("cordata", "logs", "-n", "1").stdout.splitlines()
    assert line.startswith(whole[-1]["at"][:23]) and whole[-1]["message"] in line


def test_one_request_is_found_by_its_id_and_by_level(host: Host) -> None:
    host.sh(REFUSED)
    (entry,) = shown(host, "--request", REQUEST)
    assert entry["unit"].startswith("worker@") and entry["level"] == "warning"
    assert REQUEST in host.run("cordata", "logs", "--level", "warning").stdout
    at_a_terminal = "cordata logs --level warning --request " + REQUEST
    coloured = host.run("script", "--quiet", "--return", "--command", at_a_terminal, "/dev/null")
    assert "\x1b[33m" in coloured.stdout and REQUEST in coloured.stdout
    assert not shown(host, "--level", "error", "--request", REQUEST)
    assert not shown(host, "--request", "unknown")


def test_new_entries_follow_until_it_is_ended(host: Host) -> None:
    host.sh(REFUSED)
    command = "echo $$; exec timeout --foreground 60 cordata logs -f -n 1 --level warning"
    with host.popen("sh", "-c", command) as following:
        assert following.stdout is not None
        pid = int(following.stdout.readline())
        following.stdout.readline()
        host.sh(REFUSED.replace(REQUEST, "0123456789abcdef"))
        while "0123456789abcdef" not in following.stdout.readline():
            assert following.poll() is None
        host.kill("INT", pid)
        following.communicate()
    assert following.returncode == 130


@pytest.mark.parametrize("options", ["--unit job@none", ""], ids=["named", "all"])
def test_first_lines_of_systemd_about_a_unit_are_followed(host: Host, options: str) -> None:
    name = "job@none" if options else "job@never"
    command = f"echo $$; exec timeout --foreground 60 cordata logs -f --json {options}"
    with host.popen("sh", "-c", command) as following:
        assert following.stdout is not None
        pid = int(following.stdout.readline())
        files = f"ls -l /proc/{pid}/fd /proc/$(pgrep -P {pid})/fd 2>/dev/null || true"
        wait_for(lambda: "/journal/" in host.sh(files), what="the journal")
        host.systemctl("start", name, check=False)
        while True:
            entry = json.loads(following.stdout.readline())
            if (entry["logger"], entry["unit"]) == ("systemd", name):
                break
            assert following.poll() is None
        host.kill("INT", pid)
        following.communicate()
    host.systemctl("reset-failed", name)


def test_user_who_may_not_read_the_journal_learns_what_to_do(host: Host) -> None:
    refused = host.run("runuser", "-u", "nobody", "--", "cordata", "logs", check=False)
    assert refused.returncode == 1
    assert "systemd-journal" in refused.stderr
    # Whoever has logged in has a journal of their own, and may not read that of the services.
    host.sh("useradd eva && runuser -u eva -- logger of her own && journalctl --sync")
    assert host.sh("ls /var/log/journal/*/user-*.journal")
    refused = host.run("runuser", "-u", "eva", "--", "cordata", "logs", check=False)
    assert refused.returncode == 1, refused
    assert "systemd-journal" in refused.stderr
    host.sh("adduser --quiet eva systemd-journal")
    assert host.run("runuser", "-u", "eva", "--", "cordata", "logs").stdout


ACCEPTED = "order-4711"
#: Of the trace that another program began.
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def traced(host: Host, *arguments: str, user: str = "root") -> dict[str, Any]:
    command = ("runuser", "-u", user, "--", "cordata", "trace", "--json", *arguments)
    found: dict[str, Any] = json.loads(host.run(*command).stdout)
    return found


def steps(found: dict[str, Any], *names: str) -> list[list[Any]]:
    return [[step.get(name) for name in names] for step in found["steps"]]


def test_what_a_request_caused_is_found_in_store_and_journal(hub: Host) -> None:
    answer = hub.run(
        *("curl", "-sS", "-i", "-H", "X-Webhook-Secret: demo", "-H", f"X-Request-ID: {ACCEPTED}"),
        *("-H", f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01"),
        *("-H", "Content-Type: application/json", "--data", BOOKING.replace("{n}", "traced")),
        "http://127.0.0.1:8080/api/webhook/generic",
    ).stdout
    assert answer.startswith("HTTP/1.1 20"), answer
    hub.sh(REFUSED.replace("-H", f"-H 'traceparent: 00-{TRACE}-00f067aa0ba902b7-01' -H", 1))
    found = traced(hub, ACCEPTED)
    assert (found["request_ids"], found["trace_ids"]) == ([ACCEPTED], [TRACE])
    assert ["published", "reservation.received"] in steps(found, "step", "type")
    assert found["journal"] is None
    # The trace has both requests; the refused one has left its line only.
    both = traced(hub, TRACE)
    assert set(both["request_ids"]) == {ACCEPTED, REQUEST}
    [line] = [step for step in both["steps"] if step["step"] == "log"]
    assert line["level"] == "warning" and line["unit"].startswith("worker@")
    assert "refused: 40" in line["message"]
    assert steps(traced(hub, REQUEST), "step")[-1] == ["log"]
    fields = hub.sh(f"journalctl -o json TRACE_ID={TRACE}").splitlines()
    assert {json.loads(one)["REQUEST_ID"] for one in fields} == {REQUEST}
    shown = hub.run("cordata", "trace", ACCEPTED).stdout
    assert "reservation.received" in shown and "@" not in shown.replace("worker@", "")
    # Its user opens the store, and not the journal (nor the master key, so without that).
    config = "/run/cordata/traced.toml"
    hub.sh(f"printf '[paths]\\ncredentials = \"/nonexistent\"\\n' >{config}; chmod 644 {config}")
    without = traced(hub, ACCEPTED, "--config", config, user="cordata")
    assert without["steps"] == found["steps"] and "systemd-journal" in without["journal"]
