"""`cordata job` says in one line what it did, and why it did nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.servers.process import free_port

from cordata.alert import Spool


@pytest.mark.usefixtures("one_day")
def test_job_says_what_it_did(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, app="tests.integration.cli.diary:app"))
    assert cordata("migrate", "--config", config).returncode == 0

    def said(*words: str, code: int = 0) -> str:
        done = cordata("job", *words, "--config", config)
        assert done.returncode == code, done.stderr
        return done.stdout

    # Once a day: the second call tells that it is done, and how to have it done again.
    assert said("daily") == "daily: 1 ran\n"
    nothing = said("daily", "--force")
    found = re.fullmatch(
        r"daily: nothing is due; (\S+) is done \(--scope '' --period \1 --force runs it again\)\n",
        nothing,
    )
    assert found is not None, nothing
    named = ("daily", "--scope", "", "--period", found[1])
    assert said(*named) == "daily: 1 done before (again with --force)\n"
    assert said(*named, "--force") == "daily: 1 ran\n"
    # With scopes: nobody has a run, one has none yet, one has.
    assert said("idle") == ("idle: nothing is due in any scope; --scope shows what ran last\n")
    assert said("idle", "--scope", "x") == "idle: nothing is due for x, and it has never run\n"
    assert said("idle", "--scope", "x", "--period", "p1") == "idle: 1 ran\n"
    assert "nothing is due for x; p1 is done (--scope 'x'" in said("idle", "--scope", "x")
    assert said("halves", code=1) == "halves: 1 ran, 1 failed (the next call tries again)\n"
    again = said("halves", code=1)
    assert again.startswith("halves: 1 failed (") and "1 done before" in again


def test_job_runs_on_the_store_of_a_server_when_its_directory_is_given(tmp_path: Path) -> None:
    config = ("--config", str(write_config(tmp_path, app="tests.integration.cli.diary:app")))
    there = ("--state-dir", str(tmp_path / "data"))
    (tmp_path / "data/run").mkdir(parents=True, mode=0o700)
    assert cordata("migrate", *config, *there).returncode == 0
    one = ("job", "idle", "--scope", "x", "--period", "p1")
    assert cordata(*one, *config, *there).stdout == "idle: 1 ran\n"
    assert "1 done before" in cordata(*one, *config, *there).stdout
    assert list((tmp_path / "state").iterdir()) == []


def test_errors_of_a_job_are_left_to_the_primary_as_alerts(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, app="tests.integration.cli.diary:app"))
    assert cordata("migrate", "--config", config).returncode == 0
    assert cordata("job", "halves", "--config", config).returncode == 1
    with Spool([tmp_path / "state"]).taken() as groups:
        [group] = groups
    assert group.place.endswith(" job halves")
    assert (group.count, group.pending) == (1, 1)


@pytest.mark.usefixtures("one_day")
@pytest.mark.parametrize(
    ("first", "code"), [("halves", 1), ("lost", 1), ("waiting", 69), ("idle", 0)]
)
def test_jobs_of_one_call_run_each_though_another_fails(
    tmp_path: Path, first: str, code: int
) -> None:
    config = str(write_config(tmp_path, app="tests.integration.cli.diary:app"))
    assert cordata("migrate", "--config", config).returncode == 0
    done = cordata("job", first, "daily", "--config", config)
    assert done.stdout.splitlines()[-1] == "daily: 1 ran"
    assert done.returncode == code
    last = cordata("job", "daily", first, "--config", config)
    assert last.stdout.startswith("daily: nothing is due; ")
    assert last.returncode == code


def test_error_of_each_job_is_told_when_several_of_one_call_fail(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, app="tests.integration.cli.diary:app"))
    assert cordata("migrate", "--config", config).returncode == 0
    done = cordata("job", "lost", "halves", "waiting", "--config", config)
    assert done.returncode == 69  # one of them passes
    for said in ("LookupError", "halves south p1 failed", "waiting north p1 failed"):
        assert said in done.stderr


def test_job_says_that_it_may_be_tried_soon_when_the_store_is_away(tmp_path: Path) -> None:
    port = free_port()
    text = f'[store]\nurl = "postgresql://127.0.0.1:{port}/nobody"\n'
    config = str(write_config(tmp_path, text, app="tests.integration.cli.diary:app"))
    done = cordata("job", "daily", "idle", "--config", config)
    assert done.returncode == 69, done.stderr
    assert "Traceback" not in done.stderr and str(port) in done.stderr


def test_job_is_not_run_when_another_of_the_call_is_unknown(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, app="tests.integration.cli.diary:app"))
    assert cordata("migrate", "--config", config).returncode == 0
    done = cordata("job", "daily", "dialy", "--config", config)
    assert (done.returncode, done.stdout) == (78, "")


def test_scope_is_refused_when_several_jobs_are_named(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, app="tests.integration.cli.diary:app"))
    done = cordata("job", "daily", "idle", "--scope", "x", "--config", config)
    assert done.returncode == 2 and "are for one job" in done.stderr
