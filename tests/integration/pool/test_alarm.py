"""What the manager would mail, a worker mails: it has the network and the credentials."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path

from msgspec import Raw, msgpack
from tests.integration.cli.test_alert import mailbox
from tests.integration.pool.managing import exited, managed
from tests.integration.pool.test_manager_limits import limit_files
from tests.integration.pool.test_together import refused, together

from cordata import events
from cordata.core.pool.message import CallFrame, ErrorFrame, Reply, SessionOp
from cordata.core.pool.order import Alarm, Drain, Run


def test_command_that_is_refused_is_mailed_by_a_worker(tmp_path: Path) -> None:
    with mailbox() as box:
        settings = (
            'poison_limit = 1\n[alert]\nto = ["ops@example.org"]\n'
            f'[mail]\nhost = "127.0.0.1"\nport = {box.port}\nsender = "cordata@example.org"\n'
        )
        with together(tmp_path, settings) as all_, all_.worker():
            with all_.manager.client() as client:
                assert refused(client, "die", int(signal.SIGSEGV)).code == "crashed"
                assert refused(client, "die", int(signal.SIGSEGV)).code == "poisoned"
            deadline = time.monotonic() + 10.0
            while not box.mails:
                assert time.monotonic() < deadline, "no mail came"
                time.sleep(0.02)
    (sent,) = box.mails
    # Folded, as older libraries give it.
    assert "command die is refused for a while" in " ".join(sent["Subject"].split())


def test_one_worker_is_told_and_one_that_stays_if_there_is_any(tmp_path: Path) -> None:
    with managed(tmp_path, "[pool]\npoison_limit = 1\n") as manager:
        with manager.worker("0") as leaving, manager.worker("1") as staying:
            with manager.client() as client:
                leaving.send(Drain())
                child = manager.child("1")
                client.send(CallFrame(1, "echo"))
                run = child.expect(Run)
                child.close()
                staying.send(exited(1, sig=11, n=run.n))
                assert client.expect(ErrorFrame).code == "crashed"
            told = staying.expect(Alarm)
            assert told.ev == events.POOL_COMMAND_POISONED
            assert told.m.startswith("command echo is refused")
            assert leaving.silent(0.2)


def test_alarm_waits_for_a_worker(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        limit_files(manager, 500)
        value = Raw(msgpack.encode(b"x" * 1000))
        client.send(SessionOp(1, "create", "s", set={"v": value}))
        client.expect(Reply)
        manager.until_logged("sessions are not saved")
        with manager.worker() as worker:
            told = worker.expect(Alarm)
            assert (told.ev, "not saved" in told.m) == (events.POOL_JOURNAL_FAILED, True)
        limit_files(manager, resource.RLIM_INFINITY)
        with manager.worker("1") as worker:
            assert worker.silent(0.2)
