"""The life of the packages on a host: installed, upgraded under load, removed, purged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from tests.host.load import booking_load
from tests.host.machine import Host, find_tree
from tests.host.package import Packages, install

WORKERS = [f"worker@{n}.service" for n in range(4)]
ALL = ["primary.service", *WORKERS]
#: Names of the units, instances and all.
OURS = ["worker@*", "alert@*", "job@*", "primary.*", "daily-report.*", "http.*"]
OURS += ["cordata-backup.*", "cordata.slice", "cordata.target", "workers.target"]
ENABLED = ["http.socket", "cordata.target", "workers.target", "primary.service"]
RUNNING = ["list-units", "--state=active,activating,deactivating,failed", "--no-legend"]
#: What a host remembers of a package that was there: the package manager's and the journal's.
_MEMORY = ("/var/log/", "/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/", "/run/log/", "/proc/")
COUNT = "sqlite3 /var/lib/cordata/cordata.db 'select count(*) from reservation'"
STORED = "sqlite3 /var/lib/cordata/cordata.db 'select external_id from reservation'"
REMOVAL = "usr/share/cordata/alpinehub/sql/migrations/1000_removed.sql"
POLICY = "/usr/sbin/policy-rc.d"
DOWN = ["http.socket", "cordata.target", "worker@*.service", "primary.service"]
SHOP = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from cordata import App


async def hello(request):
    return PlainTextResponse("open")


app = App("shop")
app.mount("", Starlette(routes=[Route("/hello", hello)]))
"""
READY = ("curl", "-fsS", "http://127.0.0.1:8080/api/ready")


@pytest.fixture(scope="module")
def newer(debs: Packages, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The same packages as a later version."""
    return debs.later(tmp_path_factory.mktemp("newer"))


@pytest.fixture
def host(debs: Packages, newer: Packages) -> Iterator[Host]:
    """A host without the packages, and both versions of them at hand."""
    with Host(find_tree(), binds={**debs.binds(), **newer.binds("/newer")}) as host:
        yield host


def apt(host: Host, *words: str) -> str:
    """What apt-get says."""
    done = host.run("apt-get", "-y", *words, timeout_s=300)
    return done.stdout + done.stderr


def enabled(host: Host) -> list[str]:
    """Which of the units start at boot, or with another one that does."""
    said = host.systemctl("is-enabled", *ENABLED, check=False).split()
    return [unit for unit, state in zip(ENABLED, said, strict=True) if state == "enabled"]


@pytest.fixture
def demo(host: Host) -> Host:
    """The host with both packages and the demo hotel."""
    install(host)
    host.run("alpinehub", "demo")
    return host


def restarted(host: Host, cursor: str) -> list[str]:
    """The units that became ready since then, in order."""
    jobs = host.journal("JOB_TYPE=restart", "JOB_TYPE=start", "JOB_RESULT=done", since=cursor)
    return [unit for unit, _ in groupby(job["UNIT"] for job in jobs if job["UNIT"] in ALL)]


def pids(host: Host) -> dict[str, int]:
    return {unit: host.main_pid(unit) for unit in ALL}


def upgrade(host: Host) -> str:
    """Install the later version; what apt-get says. Raises: HostError if it fails."""
    return apt(host, "install", "/newer/cordata.deb", "/newer/alpinehub.deb")


def check_stored(host: Host, acknowledged: set[int]) -> None:
    """Each acknowledged request of the load is stored, once."""
    stored = host.sh(STORED).splitlines()
    assert len(stored) == len(set(stored))
    assert {f"load-{number}" for number in acknowledged} == set(stored)


def test_nothing_fails_when_the_packages_are_upgraded_and_when_they_are_downgraded(
    demo: Host,
) -> None:
    demo.systemctl("disable", "--now", "daily-report.timer")
    socket = demo.props("http.socket", "InvocationID")
    acknowledged: set[int] = set()
    for folder, options in (("/newer", ()), ("", ("--allow-downgrades",))):
        cursor, former = demo.cursor(), pids(demo)
        with booking_load(demo, connections=16, first=len(acknowledged)) as load:
            install(demo, folder, *options)
        assert load.failed == {} and load.counts["ok"] > 16
        print(f"longest request: {load.result['max_ms']} ms of {load.counts['ok']}")
        acknowledged.update(load.result["acknowledged"])
        # Once for both, when both are in place; each was ready before the next one stopped.
        assert restarted(demo, cursor) == ALL
        assert not set(pids(demo).values()) & set(former.values())
        assert demo.props("http.socket", "InvocationID") == socket
        for unit in ALL:
            state = demo.props(unit, "ActiveState", "ProtectSystem", "NeedDaemonReload")
            assert set(state.values()) == {"active", "strict", "no"}, unit
        # What the administrator disabled stays so.
        assert demo.systemctl("is-enabled", "daily-report.timer", check=False) == "disabled"
        check_stored(demo, acknowledged)


def test_upgrade_starts_nothing_that_the_administrator_stopped(demo: Host) -> None:
    former = pids(demo)
    demo.systemctl("stop", "worker@3", "daily-report.timer")
    demo.systemctl("mask", "--runtime", "worker@2")
    upgrade(demo)
    now = pids(demo)
    assert now["worker@3.service"] == 0
    assert demo.props("daily-report.timer", "ActiveState")["ActiveState"] == "inactive"
    # A masked one is not started, and does not end the restart of the others.
    assert now["worker@2.service"] in (0, former["worker@2.service"])
    for unit in ("primary.service", *WORKERS[:2]):
        assert now[unit] not in (0, former[unit])

    demo.systemctl("unmask", "--runtime", "worker@2")
    demo.systemctl("stop", *DOWN)
    said = apt(demo, "install", "--reinstall", "/newer/cordata.deb")
    assert set(pids(demo).values()) == {0} and "error" not in said, said
    assert demo.run(*READY, check=False).returncode == 7


def test_upgrade_restarts_nothing_when_policy_forbids_it(demo: Host) -> None:
    former = pids(demo)
    asked = "/run/asked"
    demo.path(POLICY).write_text(f'#!/bin/sh\necho "$@" >>{asked}\nexit 101\n')
    demo.run("chmod", "755", POLICY)
    assert "policy-rc.d forbids the restart" in upgrade(demo)
    assert demo.sh(f"cat {asked}") == "cordata.target restart"
    assert pids(demo) == former
    # It says so until somebody restarts them.
    assert "older than the installed version" in demo.run("cordata", "status", check=False).stdout
    demo.run("cordata", "rolling-restart")
    assert demo.run("cordata", "status").returncode == 0


def test_old_processes_serve_on_when_the_new_version_could_not_run(demo: Host) -> None:
    former = pids(demo)
    demo.sh("printf '\n[worker.3]\nserivces = []\n' >>/etc/cordata/cordata.toml")
    with booking_load(demo, connections=8) as load:
        said = upgrade(demo)
    assert load.failed == {} and pids(demo) == former
    assert "the nearest known is services" in said and "`cordata status` names them" in said
    # It is installed all the same: other packages can be installed, too.
    assert demo.sh("dpkg-query -W -f='${db:Status-Abbrev}' cordata") == "ii "
    assert demo.sh("dpkg --audit") == ""
    demo.sh("sed -i '/^\\[worker.3\\]$/,$d' /etc/cordata/cordata.toml")
    demo.run("cordata", "rolling-restart")
    assert not set(pids(demo).values()) & set(former.values())


def test_all_are_restarted_at_once_when_the_new_version_removes_something(
    debs: Packages, tmp_path: Path
) -> None:
    newer = debs.later(tmp_path, {REMOVAL: "DROP TABLE IF EXISTS former;\n"})
    with Host(find_tree(), binds={**debs.binds(), **newer.binds("/newer")}) as host:
        install(host)
        host.run("alpinehub", "demo")
        former = pids(host)
        with booking_load(host, connections=16) as load:
            said = upgrade(host)
        assert load.failed == {} and load.counts["ok"] > 16
        check_stored(host, set(load.result["acknowledged"]))
        assert "restarting all processes at once instead" in said
        assert not set(pids(host).values()) & {0, *former.values()}
        assert host.sh("cordata migrate --check") == "the schema is current"


def files(host: Host) -> set[str]:
    """All paths of the host's own file systems, but for what remembers."""
    found = host.sh("find / /run /tmp -xdev ! -path '/src/*' -print").splitlines()
    return {path for path in found if not path.startswith(_MEMORY)}


def left_behind(host: Host, before: set[str]) -> set[str]:
    """What is there of the packages that was not there before them."""
    ours = ("cordata", "alpinehub", "daily-report", "worker@", "workers.target", "http.socket")
    return {path for path in files(host) - before if any(name in path for name in ours)}


def nothing_runs(host: Host) -> bool:
    """No unit runs or has failed, and connections are refused."""
    refused = host.run(*READY, check=False).returncode == 7
    return refused and host.systemctl(*RUNNING, *OURS) == ""


def test_cordata_alone_starts_nothing_and_says_so(host: Host) -> None:
    before = files(host)
    said = apt(host, "install", "/cordata.deb")
    assert (
        "nothing runs until an application is configured; `cordata doctor` says what to do next"
        in said
    )
    assert nothing_runs(host) and enabled(host) == []
    done = host.run("cordata", "config", "check", check=False)
    assert done.returncode == 78 and "[app] import is not set" in done.stderr
    assert "systemctl enable --now cordata.target" in done.stderr
    done = host.run("cordata", "doctor", check=False)
    assert done.returncode == 1 and "there is no application to run" in done.stdout
    assert ", 1 failed" in done.stdout
    # Whoever starts it all the same is told why it does not run.
    cursor = host.cursor()
    host.systemctl("start", "primary", check=False)
    assert host.props("primary", "ExecMainStatus", "NRestarts") == {
        "ExecMainStatus": "78",
        "NRestarts": "0",
    }
    assert host.journal("-u", "primary", "--grep=no application to run", since=cursor)
    host.systemctl("reset-failed", "primary")

    # The hub comes later, goes, comes back: nothing of it keeps running without it.
    apt(host, "install", "/alpinehub.deb")
    assert host.run(*READY).stdout and enabled(host) == ENABLED
    cursor = host.cursor()
    apt(host, "remove", "alpinehub")
    assert nothing_runs(host) and enabled(host) == []
    host.systemctl("daemon-reload")
    assert host.journal("-p", "warning", "-u", "worker@*", since=cursor) == []
    assert host.run("cordata", "config", "check", check=False).returncode == 78
    apt(host, "install", "/alpinehub.deb")
    assert host.run(*READY).stdout and enabled(host) == ENABLED

    # The runtime goes first, its purge before that of the hub.
    apt(host, "remove", "cordata")
    assert nothing_runs(host)
    apt(host, "purge", "cordata")
    apt(host, "purge", "alpinehub")
    assert left_behind(host, before) == set()


def test_another_application_keeps_running_when_the_hub_comes_and_goes(host: Host) -> None:
    apt(host, "install", "/cordata.deb")
    host.sh("mkdir /srv/shop")
    host.path("/srv/shop/shop.py").write_text(SHOP)
    setting = 's|^# import = .*|import = "shop:app"|; s|^# path = .*|path = ["/srv/shop"]|'
    host.run("sed", "-i", setting, "/etc/cordata/cordata.toml")
    host.systemctl("enable", "--now", "cordata.target")
    hello = ("curl", "-fsS", "http://127.0.0.1:8080/hello")
    assert host.run(*hello).stdout == "open"
    assert enabled(host) == ENABLED
    pid = host.main_pid("worker@1")
    apt(host, "install", "/alpinehub.deb")
    assert host.systemctl("is-enabled", "daily-report.timer", check=False) == "disabled"
    apt(host, "purge", "alpinehub")
    assert host.main_pid("worker@1") == pid and host.run(*hello).stdout == "open"
    apt(host, "remove", "cordata")
    assert nothing_runs(host)


def test_data_stays_when_the_packages_are_removed_and_nothing_when_they_are_purged(
    host: Host,
) -> None:
    before = files(host)
    install(host)
    host.run("alpinehub", "demo")
    # Persistent timers leave a file with the time of their last run.
    host.systemctl("enable", "--now", "worker@4", "cordata-backup.timer")
    with booking_load(host, connections=4) as load:
        host.run("apt-get", "-qq", "-y", "remove", "cordata", "alpinehub")
    # While the socket goes down, systemd drops what is in its queue; from then on all are refused.
    assert set(load.failed) <= {"refused", "lost"} and load.counts["refused"]
    assert host.systemctl(*RUNNING, *OURS) == ""
    stored = host.sh(COUNT)
    assert int(stored) == load.counts["ok"]
    assert host.path("/etc/cordata/credentials/master-key").exists()

    install(host)
    assert host.sh(COUNT) == stored and host.run(*READY).stdout
    install(host, "", "--reinstall")
    assert host.sh(COUNT) == stored and host.run(*READY).stdout

    host.run("apt-get", "-qq", "-y", "purge", "alpinehub", "cordata")
    assert left_behind(host, before) == set()
    assert host.run("getent", "passwd", "cordata", check=False).returncode == 2
    assert host.systemctl(*RUNNING, *OURS) == ""
    assert host.systemctl("list-unit-files", "--no-legend", *OURS, check=False) == ""


def test_nothing_runs_when_the_database_is_of_another_program(host: Host) -> None:
    """As one of a version before the first release, which is not migrated."""
    install(host)
    host.systemctl("stop", "cordata.target", *WORKERS, "primary.service", "http.socket")
    sql = "update migration set digest = 'of another text' where component = 'alpinehub'"
    host.run("sqlite3", "/var/lib/cordata/cordata.db", sql)
    cursor = host.cursor()
    host.systemctl("start", "primary", check=False)
    assert host.props("primary", "ExecMainStatus", "NRestarts") == {
        "ExecMainStatus": "78",
        "NRestarts": "0",
    }
    [why, *_] = host.journal("-u", "primary", "--grep=alpinehub 0001", since=cursor)
    assert re.search("another text|changed|differs", why["MESSAGE"]), why


def test_first_start_is_left_to_the_operator_when_policy_says_so(host: Host) -> None:
    # As image builders have it: units are enabled, nothing runs until the machine boots.
    host.sh(
        "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d"
    )
    install(host)
    assert host.props("primary.service", "ActiveState")["ActiveState"] == "inactive"
    assert enabled(host) == ENABLED
