"""The other tests once more, in a Debian 13 host on Debian's own libraries."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.host.machine import CHECKOUT, Host, find_tree

#: Schemas and sample messages that lie beside the checkout, if they do.
_SHARED = Path(os.environ.get("CORDATA_SHARED") or CHECKOUT.parent / "shared").absolute()
#: Redis 8 and Valkey 8; in a virtual environment on Debian 12 it is Redis 7.
_BROKERS = ("redis-server", "valkey-server")
#: Not run again here: processes killed at random for a while, and long ways through a command's
#: subjects. Half of the processor time of all; what comes of them hangs on our own code and
#: hardly on a library's version, and the tests of the hosts kill the package's own processes here.
_ONCE = (
    "integration/alpinebits/test_pushed.py",
    "integration/cli/test_alerts.py",
    "integration/cli/test_eventstore.py::test_subscription_is_seen_reset_resumed_and_rebuilt",
    "integration/cli/test_eventstore.py::test_test_mode_handles_every_event_that_is_there",
    "integration/cli/test_new.py",
    "integration/cli/test_operator.py::test_dead_letter_is_seen_replayed_and_handled_once",
    "integration/cli/test_operator.py::test_drop_and_purge_ask_and_nobody_answers",
    "integration/cli/test_progress.py",
    "integration/cli/test_secrets.py",
    "integration/cli/test_operator.py::test_replay_has_one_group_do_it_again",
    "integration/engine/test_crash.py",
    "integration/engine/test_order.py",
    "integration/engine/test_server_crash.py",
    "integration/eventstore/test_crash.py",
    "integration/hub/test_cli.py::test_command_manages_a_hotel_from_first_to_last",
    "integration/hub/test_cli.py::test_command_tells_and_erases_a_person",
    "integration/hub/test_delivery_model.py",
    "integration/hub/test_either.py",
    "integration/hub/test_hotel_settings.py",
    "integration/hub/test_inbox.py",
    "integration/hub/test_load.py",
    "integration/hub/test_race.py",
    "integration/hub/test_requests.py::test_command_lists_shows_resends_and_cancels",
    "integration/hub/test_rotation.py::test_command_adds_shows_and_rotates_sources_of_every_kind",
    "integration/pms/test_check.py",
    "integration/pool/test_chaos.py",
    "integration/pool/test_together.py",
    "integration/documents",
    "integration/redis/test_disaster.py::"
    "test_nothing_is_lost_or_strands_when_workers_are_killed_at_random",
    "integration/server/test_hub_bad_input.py",
    "integration/server/test_hub_chaos.py",
    "integration/server/test_hub_postgres.py",
    "integration/server/test_test_mode.py::test_chains_are_followed_by_several_workers_on_servers",
    "integration/store/test_crash.py",
    "unit/style",
)
#: A copy of the checkout, into which programs write their bytecode.
_COPY = "/srv/checkout"
_NOT_COPIED = ("__pycache__", "./.git", "./.run", "./dist", "./.hypothesis", "'./.*_cache'")
#: A line of pytest's summary: the test, and why.
_FAILED = re.compile(r"^(?:FAILED|ERROR) .*$", re.MULTILINE)
#: More than these have not failed for want of time.
_AGAIN = 5


def test_all_pass_when_they_run_on_debians_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    """What failed beside three others is run once more, alone, and told: thousands of tests run
    here for the second time, to find what another library does otherwise, and that it does again.
    """
    binds = {_SHARED: "/srv/shared"} if _SHARED.is_dir() else {}
    words = ["env", f"--chdir={_COPY}", "HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis"]
    words += [f"CI={os.environ.get('CI', '')}", "CORDATA_SECOND_RUN=1"]
    words += ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Plain: what an assert compared is told when it is run again; to prepare that takes each of the
    # four processes longer than to import all the rest.
    beside = ["-n", "4", "--dist", "worksteal", "--durations=10", "--assert=plain"]
    beside += [f"--deselect=tests/{name}" for name in _ONCE]
    beside += ["tests/unit", "tests/contract", "tests/integration"]
    with Host(find_tree(), binds=binds) as host:
        # Where one is missing, the tests for it would be left out without a word.
        for program in (*_BROKERS, "pgbouncer"):
            host.run(program, "--version")
        leave = " ".join(f"--exclude={name}" for name in _NOT_COPIED)
        host.sh(f"mkdir -p {_COPY}; tar -C /src {leave} -c . | tar -C {_COPY} -x")
        done = host.run(*words, *beside, check=False, timeout_s=1800)
        said = done.stdout + done.stderr
        failed = [line.split(" ", 1)[1].split(" - ")[0] for line in _FAILED.findall(done.stdout)]
        with capsys.disabled():
            print("\nin Debian 13:", done.stdout.strip().splitlines()[-1])
        if done.returncode == 1 and 0 < len(failed) <= _AGAIN:
            done = host.run(*words, *failed, check=False, timeout_s=600)
            with capsys.disabled():
                print(said[said.find("= FAILURES") :][:10_000])
                print("run again, alone:", done.stdout.strip().splitlines()[-1])
            said += done.stdout + done.stderr
    assert done.returncode == 0, said
