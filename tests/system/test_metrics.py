"""Metrics and status page on a booted host: both have all units, and their hardening allows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.host.machine import Host, wait_for
from tests.integration.metrics.scrape import Scrape

ADDRESS, PAGE = "127.0.0.1:9464", "127.0.0.1:9465"
REQUESTS = "cordata_http_requests_total"
UNITS = {"primary", *(f"worker@{n}" for n in range(4))}


@pytest.fixture
def measured(hub: Host) -> Iterator[Host]:
    """A hub whose metrics and status page are served."""
    file = "/etc/cordata/conf.d/metrics.toml"
    hub.run("cordata", "credentials", "init", "status-token")
    text = f'[metrics]\nlisten = "{ADDRESS}"\n[status]\nlisten = "{PAGE}"\n'
    hub.run("sh", "-c", f"cat >{file}", stdin=text)
    hub.run("cordata", "rolling-restart")
    yield hub
    hub.sh(f"rm {file}")
    hub.run("cordata", "rolling-restart")


def scrape(host: Host) -> Scrape:
    text = host.run("curl", "-sS", "--fail", f"http://{ADDRESS}/metrics").stdout
    return Scrape(text_string_to_metric_families(text))


def look_at_status_page(host: Host) -> None:
    """A worker may ask systemd for the units of the host, and its page has them."""
    token = host.run("cat", "/etc/cordata/credentials/status-token").stdout.strip()
    program = ("curl", "-sS", "--fail", "-H", f"Authorization: Bearer {token}")
    document: dict[str, Any] = {}

    def is_complete() -> bool:
        # On a busy machine a part may take longer than the page waits for it.
        document.update(json.loads(host.run(*program, f"http://{PAGE}/status.json").stdout))
        return not document["errors"]

    wait_for(is_complete, timeout_s=90, what="all parts")
    units = {one["unit"]: one["state"] for one in document["units"]}
    assert {f"{name}.service" for name in UNITS} <= set(units)
    assert units["http.socket"] == "active" and document["pool"]
    assert "worker@3.service" in host.run(*program, f"http://{PAGE}/").stdout


def test_one_scrape_has_all_units_and_survives_a_killed_worker(measured: Host) -> None:
    before = scrape(measured).total(REQUESTS, code="2xx")
    for _ in range(20):
        measured.run("curl", "-sS", "--fail", "http://127.0.0.1:8080/api/health")

    def is_counted() -> bool:
        return scrape(measured).total(REQUESTS, code="2xx") >= before + 20

    wait_for(is_counted, timeout_s=60, what="20 requests")
    found = scrape(measured)
    units = {sample.labels["unit"] for sample in found.samples if sample.name == "cordata_unit_up"}
    assert units == UNITS
    assert found.total("cordata_unit_up") == len(UNITS)
    # In its unit each worker may look at the processes of the others.
    for name in ("open_fds", "max_fds", "resident_memory_bytes", "start_time_seconds"):
        assert len(found.values(f"cordata_process_{name}")) == len(UNITS), name
    assert found.values("cordata_store_up") == [1.0]
    assert any(s.labels.get("group", "").startswith("alpinehub.") for s in found.samples)

    look_at_status_page(measured)
    pid = measured.main_pid("worker@1")
    measured.run("kill", "-KILL", str(pid))
    wait_for(
        lambda: measured.main_pid("worker@1") not in (0, pid), timeout_s=60, what="a new process"
    )
    wait_for(
        lambda: scrape(measured).total("cordata_unit_up") == len(UNITS), timeout_s=60, what="five"
    )
    assert scrape(measured).total(REQUESTS, code="2xx") >= before + 20
    # Nobody else may read the files.
    modes = measured.sh("stat -c '%U %a' /run/cordata/metrics /run/cordata/metrics/*.metrics")
    assert set(modes.splitlines()) == {"cordata 700", "cordata 600"}


def test_worker_that_is_stopped_is_not_missed(measured: Host) -> None:
    measured.systemctl("stop", "worker@3")
    values = scrape(measured).values("cordata_unit_up")
    assert values == [1.0] * (len(UNITS) - 1)
    measured.systemctl("start", "worker@3")
    assert scrape(measured).values("cordata_unit_up") == [1.0] * len(UNITS)


def test_job_is_counted_by_its_own_process(measured: Host) -> None:
    measured.systemctl("start", "job@daily-report")
    names = {s.labels.get("job_name") for s in scrape(measured).samples}
    assert "daily-report" in names


def test_rules_of_the_package_are_valid(measured: Host) -> None:
    directory = "/usr/share/cordata/prometheus"
    assert (
        "SUCCESS"
        in measured.run("promtool", "check", "rules", f"{directory}/cordata.rules.yml").stdout
    )
    measured.run("python3", "-m", "json.tool", f"{directory}/cordata.dashboard.json")


def test_address_that_others_reach_ends_with_78(measured: Host) -> None:
    measured.sh(
        "mkdir /tmp/wrong; printf '[metrics]\\nlisten = \":9464\"\\n' >/tmp/wrong/cordata.toml"
    )
    done = measured.run(
        "cordata", "config", "check", "--config", "/tmp/wrong/cordata.toml", check=False
    )
    assert done.returncode == 78 and "must be a loopback address" in done.stderr
