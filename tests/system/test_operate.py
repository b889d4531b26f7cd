"""`cordata rolling-restart`, `scale` and `drain` on a booted host."""

from __future__ import annotations

import json
from itertools import groupby

from tests.host.load import booking_load
from tests.host.machine import Host, wait_for

WORKERS = [f"worker@{n}.service" for n in range(4)]
ALL = ["primary.service", *WORKERS]
DROP_IN = "/etc/systemd/system/workers.target.d/workers.conf"
MIGRATIONS = "/usr/share/cordata/alpinehub/sql/migrations"
DOWN = ["http.socket", "cordata.target", "worker@*.service", "primary.service"]


def pids(host: Host) -> dict[str, int]:
    return {unit: host.main_pid(unit) for unit in ALL}


def active(host: Host) -> list[str]:
    """The workers that run."""
    listed = host.systemctl("list-units", "--no-legend", "--plain", "--state=active", "worker@*")
    return sorted(line.split()[0] for line in listed.splitlines())


def failed_restart(host: Host, code: int = 1) -> str:
    """What a rolling restart that fails says."""
    done = host.run("cordata", "rolling-restart", check=False)
    assert done.returncode == code, done
    return str(done.stderr)


def test_no_request_fails_when_all_are_restarted_one_by_one(hub: Host) -> None:
    former, cursor = pids(hub), hub.cursor()
    with booking_load(hub, connections=16) as load:
        done = hub.run("cordata", "rolling-restart", "--json")
    assert load.failed == {} and load.counts["ok"] > 16
    now = pids(hub)
    restarted = json.loads(done.stdout)["restarted"]
    assert [one["unit"] for one in restarted] == ALL
    assert {one["unit"]: one["former_pid"] for one in restarted} == former
    assert {one["unit"]: one["pid"] for one in restarted} == now
    assert not set(now.values()) & set(former.values())
    # Each was up before the next went down.
    done_jobs = ("JOB_TYPE=restart", "JOB_TYPE=start", "JOB_RESULT=done")
    units = [job["UNIT"] for job in hub.journal(*done_jobs, since=cursor)]
    assert [unit for unit, _ in groupby(unit for unit in units if unit in ALL)] == ALL


def test_restart_ends_at_the_first_worker_that_is_not_ready(hub: Host) -> None:
    directory = "/etc/systemd/system/worker@1.service.d"
    text = '[Service]\\nExecStart=\\nExecStart=/bin/sh -c "echo it is broken; exit 3"\\n'
    hub.sh(f"mkdir {directory} && printf '{text}' >{directory}/broken.conf")
    hub.systemctl("daemon-reload")
    former = pids(hub)
    with booking_load(hub, connections=8) as load:
        said = failed_restart(hub)
    hub.sh(f"rm -r {directory}")
    hub.systemctl("daemon-reload")
    assert load.failed == {}
    assert "worker@1.service: " in said and "it is broken" in said
    assert "restarted: primary.service worker@0.service; " in said
    assert "not restarted: worker@2.service worker@3.service" in said
    assert "run `cordata rolling-restart` again" in said
    now = pids(hub)
    assert {unit for unit in ALL if now[unit] == former[unit]} == set(WORKERS[2:])
    # What it says helps, also for one that has failed for good.
    hub.systemctl("stop", "worker@1")
    hub.systemctl("start", "worker@1")
    hub.run("cordata", "rolling-restart")
    assert not set(pids(hub).values()) & set(now.values())


def test_restart_gives_up_on_one_that_takes_too_long(hub: Host) -> None:
    directory = "/etc/systemd/system/worker@0.service.d"
    text = "[Service]\\nExecStartPre=/bin/sleep 8\\n"
    hub.sh(f"mkdir {directory} && printf '{text}' >{directory}/slow.conf")
    hub.systemctl("daemon-reload")
    done = hub.run("cordata", "rolling-restart", "--timeout", "3", check=False)
    hub.sh(f"rm -r {directory}")
    hub.systemctl("daemon-reload")
    assert done.returncode == 1 and "was not ready after 3 s" in done.stderr
    hub.systemctl("start", "worker@0")


def test_nothing_is_restarted_when_the_configuration_is_invalid(hub: Host) -> None:
    former = pids(hub)
    hub.sh("printf '\\n[worker.3]\\nserivces = []\\n' >>/etc/cordata/cordata.toml")
    said = failed_restart(hub)
    hub.sh("sed -i '/^\\[worker.3\\]$/,$d' /etc/cordata/cordata.toml")
    assert "nothing was restarted" in said and "the nearest known is services" in said
    assert pids(hub) == former


def test_new_migration_is_applied_when_it_adds_and_refused_when_it_removes(hub: Host) -> None:
    numbers = hub.sh(f"ls {MIGRATIONS} | tail -n 1")
    added = f"{int(numbers[:4]) + 1:04d}_added.sql"
    former = pids(hub)
    hub.sh(f"echo 'DROP TABLE stale_client;' >{MIGRATIONS}/1000_removed.sql")
    said = failed_restart(hub, code=3)
    hub.sh(f"rm {MIGRATIONS}/1000_removed.sql")
    assert "alpinehub 1000_removed removes what running workers may use" in said
    assert "systemctl restart cordata.target" in said
    assert pids(hub) == former

    hub.sh(f"echo 'CREATE TABLE added (id {{bigint}}){{strict}};' >{MIGRATIONS}/{added}")
    with booking_load(hub, connections=16) as load:
        hub.run("cordata", "rolling-restart")
    assert load.failed == {} and load.counts["ok"] > 16
    assert hub.sh("cordata migrate --check") == "the schema is current"
    hub.sh(f"rm {MIGRATIONS}/{added}")


def test_second_restart_follows_the_first(hub: Host) -> None:
    former = pids(hub)
    with hub.popen("cordata", "rolling-restart", "--json") as first:
        wait_for(lambda: hub.main_pid("primary") not in (0, former["primary.service"]))
        second = hub.run("cordata", "rolling-restart", "--json")
        said = first.communicate()
    assert first.returncode == 0, said
    assert "starts or stops units of this host" in second.stderr
    ends = [
        {one["unit"]: (one["former_pid"], one["pid"]) for one in json.loads(text)["restarted"]}
        for text in (said[0], second.stdout)
    ]
    # Each began with what the one before had left.
    assert list(ends[0]) == list(ends[1]) == ALL
    assert {unit: pid for unit, (_, pid) in ends[0].items()} == {
        unit: pid for unit, (pid, _) in ends[1].items()
    }


def test_worker_is_drained_after_a_restart_of_all_that_is_under_way(hub: Host) -> None:
    former = pids(hub)
    with hub.popen("cordata", "rolling-restart", "--json") as restart:
        wait_for(lambda: hub.main_pid("primary") not in (0, former["primary.service"]))
        drained = hub.run("cordata", "drain", "worker@3")
        said = restart.communicate()
    assert restart.returncode == 0, said
    assert active(hub) == WORKERS[:3]
    assert "starts or stops units of this host" in drained.stderr
    hub.sh("cordata drain worker@3 --undo")
    assert active(hub) == WORKERS


def test_upgrade_restarts_all_whatever_file_the_shell_names(hub: Host) -> None:
    former = pids(hub)
    upgrade = ("apt-get", "-qq", "-y", "--reinstall", "install", "/cordata.deb")
    hub.run("env", "CORDATA_CONFIG=/nonexistent.toml", *upgrade, timeout_s=120)
    assert not set(pids(hub).values()) & set(former.values())


def test_rolling_restart_is_for_root(hub: Host) -> None:
    former = pids(hub)
    done = hub.run("runuser", "-u", "nobody", "--", "cordata", "rolling-restart", check=False)
    assert done.returncode == 1 and "hint: run it as root" in done.stderr, done
    assert pids(hub) == former


def test_rolling_restart_says_so_when_nothing_runs(hub: Host) -> None:
    hub.systemctl("stop", *DOWN)
    said = failed_restart(hub)
    assert "no worker and no primary runs" in said
    hub.systemctl("start", "http.socket", "cordata.target")


def serves(host: Host, count: int, what: str) -> None:
    """Wait until these workers run, and no other."""
    wanted = [f"worker@{n}.service" for n in range(count)]
    wait_for(lambda: active(host) == wanted, timeout_s=60, what=f"{count} workers after {what}")


def test_number_of_workers_lasts_when_it_is_changed(hub: Host) -> None:
    for count in (2, 6):
        with booking_load(hub, connections=8) as load:
            said = hub.sh(f"cordata scale workers {count}")
        assert load.failed == {}
        assert f"this host has {count} workers" in said
        assert active(hub) == [f"worker@{n}.service" for n in range(count)]
        hub.systemctl("daemon-reload")
        hub.systemctl("restart", "cordata.target")
        serves(hub, count, "a restart")
        hub.systemctl("stop", *DOWN)
        hub.systemctl("start", "http.socket", "cordata.target")
        serves(hub, count, "a stop")
        hub.run("apt-get", "-qq", "-y", "--reinstall", "install", "/cordata.deb", timeout_s=120)
        serves(hub, count, "an upgrade")
    hub.reboot()
    serves(hub, 6, "a boot")
    hub.sh("cordata scale workers 4")
    assert active(hub) == WORKERS


def test_worker_that_was_enabled_goes_when_there_are_to_be_fewer(hub: Host) -> None:
    hub.systemctl("enable", "--now", "worker@7")
    said = hub.sh("cordata scale workers 4 --json")
    assert json.loads(said)["stopped"] == ["worker@7.service"] and active(hub) == WORKERS
    assert hub.systemctl("is-enabled", "worker@7", check=False) == "disabled"


def test_number_waits_for_the_start_when_the_service_is_stopped(hub: Host) -> None:
    hub.systemctl("stop", *DOWN)
    said = hub.sh("cordata scale workers 3")
    assert active(hub) == [] and "`systemctl start cordata.target` starts them" in said
    hub.systemctl("start", "http.socket", "cordata.target")
    assert active(hub) == WORKERS[:3]
    hub.sh("cordata scale workers 4")


def test_number_is_refused_when_another_file_wants_more(hub: Host) -> None:
    other = "/etc/systemd/system/workers.target.d/more.conf"
    hub.sh(f"printf '[Unit]\\nWants=worker@9.service\\n' >{other}")
    done = hub.run("cordata", "scale", "workers", "4", check=False)
    hub.sh(f"rm {other}; systemctl daemon-reload")
    assert done.returncode == 1 and "worker@9.service" in done.stderr
    assert active(hub) == WORKERS


def test_no_request_fails_when_a_worker_is_drained_and_comes_back(hub: Host) -> None:
    with booking_load(hub, connections=16) as load:
        assert "is drained" in hub.sh("cordata drain worker@2")
        assert active(hub) == ["worker@0.service", "worker@1.service", "worker@3.service"]
        assert "serves again" in hub.sh("cordata drain worker@2 --undo")
    assert load.failed == {} and active(hub) == WORKERS


def test_worker_that_does_not_run_is_not_said_to_be_drained(hub: Host) -> None:
    done = hub.run("cordata", "drain", "worker@99", check=False)
    assert done.returncode == 1 and "worker@99.service does not run" in done.stderr, done
    assert active(hub) == WORKERS


def test_worker_that_this_host_has_not_is_not_started(hub: Host) -> None:
    done = hub.run("cordata", "drain", "worker@9", "--undo", check=False)
    assert done.returncode == 1 and "cordata scale workers" in done.stderr, done
    assert active(hub) == WORKERS


def test_last_worker_is_not_drained(hub: Host) -> None:
    hub.sh("cordata drain 1 && cordata drain worker@2 && cordata drain workers@3")
    done = hub.run("cordata", "drain", "worker@0", check=False)
    assert done.returncode == 1 and "would start worker@0" in done.stderr
    assert active(hub) == ["worker@0.service"]
    hub.systemctl("start", "workers.target")
    assert active(hub) == WORKERS


def test_purge_leaves_no_number_of_workers(hub: Host) -> None:
    assert hub.path(DROP_IN).exists()
    hub.run("apt-get", "-qq", "-y", "purge", "alpinehub", "cordata", timeout_s=120)
    assert hub.sh("ls -d /etc/systemd/system/workers.target* || true") == ""
