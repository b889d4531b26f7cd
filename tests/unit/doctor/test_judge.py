"""The judgement of `cordata doctor`: values in, findings with a fix out."""

from __future__ import annotations

import pytest

from cordata.disk import Space
from cordata.doctor import judge
from cordata.doctor.finding import Finding
from cordata.doctor.judge import File, Listener
from cordata.systemd.systemctl import span_s

GIB = 1 << 30
#: A drop-in of the package, which nobody is to correct or remove.
PACKAGED = "/usr/lib/systemd/system/worker@.service.d/00-hardening.conf"


def states(*findings: Finding | None) -> list[str]:
    return [one.state for one in findings if one is not None]


def unit(name: str, **more: str) -> dict[str, str]:
    return {"Id": name, "LoadState": "loaded", "ActiveState": "active", **more}


def host(**changed: dict[str, str]) -> list[dict[str, str]]:
    """The units of a host on which all is well, but for what is changed of some of them."""
    found = {
        name: unit(name, UnitFileState="enabled", NonBlocking="yes", Type="notify-reload")
        for name in judge.UNITS
    }
    for name, values in changed.items():
        found[next(full for full in judge.UNITS if full.startswith(name))] |= values
    return list(found.values())


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("257.8-1~deb13u2", "ok"),
        ("260", "ok"),
        ("254.1", "warning"),
        ("252.39-1~deb12u2", "failed"),
        ("", "failed"),
    ],
)
def test_systemd_is_judged_by_its_number(version: str, state: str) -> None:
    assert judge.judge_systemd(version).state == state


def test_units_are_one_line_with_their_drop_ins_when_all_is_well() -> None:
    [found] = judge.judge_units(host(worker={"DropInPaths": f"{PACKAGED} /etc/a.conf /etc/b.conf"}))
    assert found.state == "ok"
    assert found.text == "5 units; drop-ins: /etc/a.conf, /etc/b.conf"


def test_units_are_skipped_when_none_is_installed() -> None:
    none = [{"Id": name, "LoadState": "not-found"} for name in judge.UNITS]
    assert states(*judge.judge_units(none)) == ["skipped"]
    other = unit("backup.service")
    assert states(*judge.judge_units([*none, other])) == ["skipped"]


@pytest.mark.parametrize(
    ("name", "values", "state", "fix"),
    [
        (
            "primary",
            {"LoadState": "masked", "ActiveState": "inactive"},
            "warning",
            "systemctl unmask primary.service",
        ),
        (
            "worker",
            {"LoadState": "masked", "ActiveState": "active"},
            "failed",
            "systemctl unmask worker@0.service",
        ),
        ("primary", {"LoadState": "not-found"}, "failed", "apt install --reinstall cordata"),
        (
            "worker",
            {
                "LoadState": "bad-setting",
                "LoadError": 'org.freedesktop.systemd1.BadUnitSetting "Bad."',
                "DropInPaths": f"{PACKAGED} /etc/x.conf",
            },
            "failed",
            "correct or remove /etc/x.conf",
        ),
        ("worker", {"NeedDaemonReload": "yes"}, "warning", "systemctl daemon-reload"),
        ("worker", {"NonBlocking": "no"}, "failed", "remove NonBlocking="),
        (
            "worker",
            {"Type": "notify", "DropInPaths": f"{PACKAGED} /etc/x.conf"},
            "failed",
            "from /etc/x.conf",
        ),
        (
            "primary",
            {"ActiveState": "failed", "Result": "exit-code"},
            "failed",
            "journalctl -u primary.service -n 50",
        ),
        (
            "cordata",
            {"UnitFileState": "disabled"},
            "warning",
            "systemctl enable --now cordata.target",
        ),
        ("cordata", {"ActiveState": "inactive"}, "warning", "systemctl start cordata.target"),
    ],
)
def test_unit_has_a_fix_when_something_is_wrong(
    name: str, values: dict[str, str], state: str, fix: str
) -> None:
    [found] = judge.judge_units(host(**{name: values}))
    assert found.state == state and fix in found.fix


def test_fault_of_a_template_is_said_once_and_each_failed_instance() -> None:
    bad = {"LoadState": "bad-setting", "DropInPaths": "/etc/x.conf", "ActiveState": "failed"}
    workers = [unit(f"worker@{n}.service", **bad) for n in range(3)]
    found = judge.judge_units([*host(worker=bad), *workers[1:]])
    assert len([one for one in found if "/etc/x.conf" in one.fix]) == 1
    assert len([one for one in found if "journalctl -u worker@" in one.fix]) == 3


def test_lines_that_systemd_ignores_are_warnings() -> None:
    line = "/etc/systemd/system/worker@.service.d/x.conf:2: Unknown key 'LimitNofile'"
    [found] = judge.judge_units(host(), [line])
    assert (found.state, found.text) == ("warning", line)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("35s", 35), ("1min 30s", 90), ("1h 500ms", 3600.5), ("2d", 172_800), ("250ms", 0.25)],
)
def test_span_is_read_as_systemd_prints_it(text: str, seconds: float) -> None:
    assert span_s(text) == seconds


@pytest.mark.parametrize(
    ("span", "found"), [("35s", []), ("30s", ["warning"]), ("infinity", []), ("1min 30s", [])]
)
def test_stop_timeout_leaves_room_for_the_ordered_stop(span: str, found: list[str]) -> None:
    worker = unit("worker@0.service", TimeoutStopUSec=span)
    assert states(judge.judge_stop_timeout(worker, "[worker] stop_timeout_s", 30.0)) == found


def test_limits_are_warnings_when_they_are_too_low() -> None:
    assert judge.judge_open_files(8192, 1000, fix="x").state == "ok"
    assert judge.judge_open_files(2000, 1000, fix="x").state == "ok"
    assert judge.judge_open_files(1999, 1000, fix="x") == Finding(
        check="limits",
        state="warning",
        text="1999 open files for 1000 connections ([http] max_connections)",
        fix="x",
    )
    low = judge.judge_backlog(4096, 128)
    assert low is not None and "sysctl -w net.core.somaxconn=4096" in low.fix
    assert judge.judge_backlog(4096, 4096) is None


def test_backups_are_made_when_their_timer_runs() -> None:
    timer = unit("cordata-backup.timer", UnitFileState="disabled", ActiveState="inactive")
    found = judge.judge_backup(timer)
    assert found.state == "skipped" and "enable --now cordata-backup.timer" in found.fix
    found = judge.judge_backup(timer | {"UnitFileState": "enabled"})
    assert (found.state, found.fix) == ("warning", "systemctl start cordata-backup.timer")
    runs = {"UnitFileState": "enabled", "ActiveState": "active"}
    last = "Sat 2026-11-28 02:31:07 UTC"
    assert last in judge.judge_backup(timer | runs | {"LastTriggerUSec": last}).text
    assert judge.judge_backup(timer | runs).state == "ok"


NGINX = Listener(address="0.0.0.0:8080", process="nginx (pid 12)")


@pytest.mark.parametrize(
    ("active", "is_there", "others", "state", "said"),
    [
        ("active", True, [NGINX], "ok", "http.socket listens on 127.0.0.1:8080"),
        ("active", False, [], "failed", "nothing listens on 127.0.0.1:8080 any more"),
        ("failed", True, [NGINX], "failed", "nginx (pid 12) listens on 0.0.0.0:8080"),
        ("failed", True, [Listener(address="[::]:8080")], "failed", "another program listens"),
        ("failed", False, [], "failed", "http.socket failed (resources)"),
        ("inactive", False, [], "warning", "http.socket is stopped"),
    ],
)
def test_socket_is_judged_by_who_listens(
    active: str, is_there: bool, others: list[Listener], state: str, said: str
) -> None:
    socket = unit("http.socket", ActiveState=active, Result="resources")
    found = judge.judge_socket(socket, "127.0.0.1:8080", is_there=is_there, others=others)
    assert found.state == state and said in found.text and bool(found.fix) == (state != "ok")


def test_addresses_are_those_of_the_socket_unit() -> None:
    socket = unit("http.socket", Listen="127.0.0.1:8080 (Stream)\n/run/cordata/http.sock (Stream)")
    assert judge.listen_addresses(socket) == ["127.0.0.1:8080", "/run/cordata/http.sock"]


def file(mode: int, *, owner: str = "cordata", directory: bool = False, **more: bool) -> File:
    return File(path="/x", owner=owner, mode=mode, is_directory=directory, **more)


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (file(0o600), []),
        (file(0o700, directory=True), []),
        (file(0o644), [("failed", "chmod go= /x")]),
        (file(0o755, directory=True), [("warning", "chmod go= /x")]),
        (file(0o600, owner="root"), [("failed", "chown cordata: /x")]),
        (file(0o500, directory=True), [("failed", "chmod u+rwX /x")]),
        (file(0o600, read_only=True), [("failed", "mount it read-write: `findmnt` shows why")]),
    ],
)
def test_state_is_the_services_own(one: File, found: list[tuple[str, str]]) -> None:
    judged = list(judge.judge_state([one], "cordata"))
    assert len(judged) == len(found)
    for finding, (state, fix) in zip(judged, found, strict=True):
        assert finding.state == state and finding.fix.startswith(fix)


def test_credentials_are_of_root_or_of_the_service_and_closed() -> None:
    good = [file(0o600, owner="root"), file(0o600)]
    assert states(*judge.judge_credentials(good, "cordata")) == []
    bad = [file(0o640, owner="root"), file(0o600, owner="eve")]
    fixes = [one.fix for one in judge.judge_credentials(bad, "cordata")]
    assert fixes == ["chmod go= /x", "chown root: /x"]


def test_configuration_is_readable_and_written_by_no_other() -> None:
    assert states(*judge.judge_configuration([file(0o644, owner="root")], "cordata")) == []
    bad = [file(0o666, owner="root"), file(0o600, owner="root", readable=False)]
    fixes = [one.fix for one in judge.judge_configuration(bad, "cordata")]
    assert fixes == ["chmod go-w /x", "chmod a+rX /x"]


@pytest.mark.parametrize(("answer", "state"), [("yes", "ok"), ("no", "warning"), (None, "skipped")])
def test_clock_is_judged_by_what_timedatectl_says(answer: str | None, state: str) -> None:
    assert judge.judge_clock(answer).state == state


@pytest.mark.parametrize(
    ("free", "total", "inodes", "state"),
    [
        (50 * GIB, 100 * GIB, (900, 1000), "ok"),
        (GIB // 2, 100 * GIB, (900, 1000), "warning"),
        (GIB // 2, 2 * GIB, (900, 1000), "ok"),
        (50 << 20, 100 * GIB, (900, 1000), "failed"),
        (50 * GIB, 100 * GIB, (40, 1000), "warning"),
        (50 * GIB, 100 * GIB, (0, 1000), "failed"),
        (50 * GIB, 100 * GIB, (0, 0), "ok"),  # btrfs does not count them
    ],
)
def test_space_is_a_warning_before_it_is_gone(
    free: int, total: int, inodes: tuple[int, int], state: str
) -> None:
    space = Space(
        path="/x",
        free_bytes=free,
        total_bytes=total,
        free_inodes=inodes[0],
        total_inodes=inodes[1],
    )
    found = judge.judge_space(space, fix="du")
    assert found.state == state and found.fix == ("" if state == "ok" else "du")


def test_wal_is_a_warning_when_it_is_far_over_its_limit() -> None:
    assert judge.judge_wal(4 << 20, 1 << 20).state == "ok"
    assert judge.judge_wal((4 << 20) + 1, 1 << 20).state == "warning"


def test_durability_names_each_setting_that_is_off() -> None:
    good = {"fsync": "on", "full_page_writes": "on"}
    assert states(*judge.judge_durability(good)) == []
    bad = [one.text for one in judge.judge_durability({**good, "fsync": "off"})]
    assert len(bad) == 1 and bad[0].startswith("fsync is off")


def test_connections_suggest_a_pool_that_fits_when_there_are_too_few() -> None:
    def judged(limit: int) -> Finding:
        return judge.judge_connections(limit=limit, used_by_others=10, processes=5, pool_size=10)

    assert judged(70).state == "ok"
    assert judged(69).state == "warning" and "pool_size = 9," in judged(69).fix


@pytest.mark.parametrize(
    ("appendonly", "fsync", "policy", "found"),
    [
        ("1", "everysec", "noeviction", ["ok"]),
        ("1", None, "noeviction", ["ok"]),
        ("0", "everysec", "noeviction", ["ok", "warning"]),
        ("1", "no", "noeviction", ["ok", "warning"]),
        ("0", "everysec", "allkeys-lru", ["ok", "warning", "warning"]),
    ],
)
def test_redis_is_judged_by_what_it_keeps(
    appendonly: str, fsync: str | None, policy: str, found: list[str]
) -> None:
    judged = judge.judge_redis(
        version="8.0", appendonly=appendonly, appendfsync=fsync, policy=policy
    )
    assert states(*judged) == found


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (16 << 20, "16.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_size_is_for_people(count: int, text: str) -> None:
    assert judge.size(count) == text
