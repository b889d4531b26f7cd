"""The life of the package on a host: upgraded under load, removed, purged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.load import booking_load
from tests.host.machine import Host, find_tree
from tests.host.package import later_version

WORKERS = [f"worker@{n}.service" for n in range(4)]
#: Names of the units, instances and all.
OURS = ["worker@*", "alert@*", "primary.*", "daily-report.*", "http.*"]
OURS += ["cordata.slice", "cordata.target", "workers.target"]
#: What a host remembers of a package that was there: the package manager's and the journal's.
_MEMORY = ("/var/log/", "/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/", "/run/log/", "/proc/")


@pytest.fixture(scope="module")
def newer_deb(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package as a later version."""
    return later_version(deb, tmp_path_factory.mktemp("newer"))


@pytest.fixture
def host(deb: Path, newer_deb: Path) -> Iterator[Host]:
    """A host without the package, and both versions of it at hand."""
    with Host(find_tree(), binds={deb: "/cordata.deb", newer_deb: "/newer.deb"}) as host:
        yield host


def install(host: Host, deb: str = "/cordata.deb") -> None:
    """As an operator does it."""
    host.run("apt-get", "-qq", "-y", "install", deb)


def test_nothing_fails_when_the_package_is_upgraded(host: Host) -> None:
    install(host)
    host.run("alpinehub", "demo")
    socket = host.props("http.socket", "InvocationID")
    with booking_load(host, connections=16) as load:
        install(host, "/newer.deb")
    assert load.failed == {} and load.counts["ok"] > 16
    assert host.props("http.socket", "InvocationID") == socket
    for unit in [*WORKERS, "primary.service", "daily-report.timer"]:
        assert host.props(unit, "ActiveState")["ActiveState"] == "active"
    stored = host.sh("sqlite3 /var/lib/cordata/cordata.db 'select count(*) from reservation'")
    assert int(stored) == load.counts["ok"]


def files(host: Host) -> set[str]:
    """All paths of the host's own file systems, but for what remembers."""
    found = host.sh("find / /run /tmp -xdev ! -path '/src/*' -print").splitlines()
    return {path for path in found if not path.startswith(_MEMORY)}


def test_data_stays_when_the_package_is_removed_and_nothing_when_it_is_purged(host: Host) -> None:
    before = files(host)
    install(host)
    host.run("alpinehub", "demo")
    host.systemctl("enable", "--now", "worker@4")
    with booking_load(host, connections=4) as load:
        host.run("apt-get", "-qq", "-y", "remove", "cordata")
    # While the socket goes down, systemd drops what is in its queue; from then on all are refused.
    assert set(load.failed) <= {"refused", "lost"} and load.counts["refused"]
    running = ["list-units", "--state=active,activating,deactivating,failed", "--no-legend"]
    assert host.systemctl(*running, *OURS) == ""
    stored = host.sh("sqlite3 /var/lib/cordata/cordata.db 'select count(*) from reservation'")
    assert int(stored) == load.counts["ok"]
    assert host.path("/etc/cordata/credentials/master-key").exists()

    install(host)
    again = host.sh("sqlite3 /var/lib/cordata/cordata.db 'select count(*) from reservation'")
    assert again == stored

    host.run("apt-get", "-qq", "-y", "purge", "cordata")
    ours = ("cordata", "daily-report", "worker@", "workers.target")
    left = {path for path in files(host) - before if any(name in path for name in ours)}
    assert left == set()
    assert host.run("getent", "passwd", "cordata", check=False).returncode == 2
    assert host.systemctl(*running, *OURS) == ""
    assert host.systemctl("list-unit-files", "--no-legend", *OURS, check=False) == ""


def test_first_start_is_left_to_the_operator_when_policy_says_so(host: Host) -> None:
    # As image builders have it: units are enabled, nothing runs until the machine boots.
    host.sh(
        "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d"
    )
    install(host)
    assert host.props("primary.service", "ActiveState")["ActiveState"] == "inactive"
    assert host.systemctl("is-enabled", "http.socket", "cordata.target").split() == ["enabled"] * 2
