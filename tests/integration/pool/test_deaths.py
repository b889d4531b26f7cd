"""Commands that kill real children: how often a call runs again, when its command is refused."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.integration.pool.workers import workers

from cordata.config.pool import PoolConfig
from cordata.errors import ChildCrashed, CommandPoisoned, SessionNotFound
from cordata.pool import SyncClient

SEGV = int(signal.SIGSEGV)


def client_of(path: Path, **settings: float) -> SyncClient:
    config = PoolConfig(**settings)  # type: ignore[arg-type]
    return SyncClient(path, timeout=20.0, pools={"default": config})


def test_idempotent_call_runs_as_often_as_may_be_and_no_other_runs_twice(tmp_path: Path) -> None:
    with workers(tmp_path) as all_, all_.worker(), all_.worker("1"):
        with client_of(all_.path, retries=2, poison_limit=100) as client:
            file = tmp_path / "ran"
            for idempotent, runs in ((True, 3), (False, 1)):
                file.write_text("")
                with pytest.raises(ChildCrashed) as caught:
                    client.execute("note_and_die", str(file), idempotent=idempotent)
                assert caught.value.signal == SEGV
                pids = file.read_text().split()
                assert len(pids) == len(set(pids)) == runs, "each run in a process of its own"
                assert str(caught.value.pid) == pids[-1]


def test_command_is_refused_after_deaths_in_a_row_and_taken_again_after_a_while(
    tmp_path: Path,
) -> None:
    with workers(tmp_path) as all_, all_.worker():
        with client_of(all_.path, retries=0, poison_limit=2, poison_pause_s=1.5) as client:

            def dies() -> None:
                with pytest.raises(ChildCrashed):
                    client.execute("die", SEGV)

            dies()
            with pytest.raises(Exception, match="NoneType"):
                client.execute("die", None)  # it failed and lived: not in a row
            dies()
            with pytest.raises(SessionNotFound):
                client.execute("die", SEGV, session="gone")  # it did not run: still in a row
            dies()
            began = time.monotonic()
            with pytest.raises(CommandPoisoned) as caught:
                client.execute("die", SEGV)
            assert 0 < caught.value.retry_after_s <= 1.5
            assert client.execute("echo", 1) == 1
            time.sleep(max(0.0, began + 1.6 - time.monotonic()))
            dies()
            with pytest.raises(CommandPoisoned):  # one more death was enough
                client.execute("die", SEGV)


def test_killed_from_outside_accuses_nobody_who_did_not_run(tmp_path: Path) -> None:
    with workers(tmp_path) as all_, all_.worker():
        with client_of(all_.path, poison_limit=1) as client:
            for _ in range(3):
                os.kill(client.execute("about")["pid"], signal.SIGKILL)
                assert client.execute("echo", 1, idempotent=True) == 1
