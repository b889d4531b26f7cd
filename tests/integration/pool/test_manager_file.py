"""The manager and its file: killed while it writes, without space, of another version."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from msgspec import Raw, msgpack
from tests.integration.pool.inside import inside
from tests.integration.pool.managing import Manager, managed
from tests.integration.pool.test_manager_limits import limit_files
from tests.integration.store.parts import small_disk

from cordata.core.pool.globals import Globals
from cordata.core.pool.message import Reply, SessionOp
from cordata.core.pool.record import MAGIC, GlobalsChanged, Put, encode
from cordata.pool.server.journal import Journal

LONG = "x" * 700_000
#: No file of the process grows.
_FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1));"


class Writer(threading.Thread):
    """Updates one session without a pause; what it was told is what must be there later."""

    def __init__(self, manager: Manager, first: int) -> None:
        super().__init__(daemon=True)
        self.client = manager.client()
        self.sent = self.kept = first
        self.start()

    def run(self) -> None:
        try:
            while True:
                self.sent += 1
                value = Raw(msgpack.encode([self.sent, LONG]))
                self.client.send(SessionOp(1, "update", "s", set={"v": value}))
                self.client.expect(Reply)
                self.kept = self.sent
        except (OSError, AssertionError):
            self.client.close()


def test_manager_killed_while_it_writes_keeps_what_it_has_answered(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        with manager.client() as client:
            client.send(SessionOp(1, "create", "s", set={"v": Raw(msgpack.encode([0, LONG]))}))
            client.expect(Reply)
        number = 0
        for turn in range(6):
            writer = Writer(manager, number)
            time.sleep(0.15 + 0.013 * turn)  # wherever it is in a write, or in a rewrite
            manager.end(signal.SIGKILL)
            writer.join(10.0)
            manager.start()
            with manager.client() as client:
                client.send(SessionOp(1, "get", "s"))
                number, text = msgpack.decode(client.expect(Reply).set["v"])
            assert text == LONG
            assert writer.kept <= number <= writer.sent
        torn = manager.log.count("were torn")
        print(f"{number} updates, {torn} torn ends")
        assert "ERROR" not in manager.log


def test_file_of_a_newer_version_is_put_aside_and_kept(tmp_path: Path) -> None:
    record = encode(Put(id="s", v=1, ttl=60.0, x=10**16, d={"v": Raw(b"\x01")}))
    newer = MAGIC[:-1] + b"\x02" + record
    with managed(tmp_path) as manager:
        manager.until_logged("pool is ready")
        manager.end()
        file = manager.state / "pool" / "sessions.journal"
        file.write_bytes(newer)
        manager.start()
        with manager.client() as client:
            client.send(SessionOp(1, "create", "s"))
            client.expect(Reply)
        manager.until_logged("ERROR.* version 2, which this program does not know.*version-2")
        assert (manager.state / "pool" / "sessions.version-2").read_bytes() == newer
        manager.end()
        # Back at the former version, the operator has what is of it.
        file.write_bytes(MAGIC + record)
        manager.start()
        with manager.client() as client:
            client.send(SessionOp(1, "get", "s"))
            assert client.expect(Reply).set == {"v": Raw(b"\x01")}


def test_full_disk_at_the_start_costs_no_call(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.until_logged("pool is ready")
        manager.end()
        file = manager.state / "pool" / "sessions.journal"
        file.unlink()
        manager.start(before=_FULL)
        with manager.client() as client:
            client.send(SessionOp(1, "create", "s"))
            client.expect(Reply)
            manager.until_logged("sessions are not saved")
            assert manager.status()["journal"]["degraded"]
            limit_files(manager, resource.RLIM_INFINITY)
            manager.until_logged("is whole again")
            manager.end(signal.SIGKILL)
        manager.start()
        with manager.client() as client:
            client.send(SessionOp(1, "get", "s"))
            client.expect(Reply)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("files", [0, 1, 2], ids=["directory", "lock", "file"])
def test_full_disk_costs_no_call_when_this_cannot_be_made(tmp_path: Path, files: int) -> None:
    room = f"1m,nr_inodes={1 + files}"  # its root is one
    with small_disk(tmp_path / "state", room) as disk, managed(tmp_path) as manager:
        manager.until_logged("sessions are not saved: .*No space left")
        with manager.client() as client:
            client.send(SessionOp(1, "create", "s"))
            client.expect(Reply)
            assert manager.status()["journal"]["degraded"]
            subprocess.run(["mount", "-o", "remount,nr_inodes=100", disk], check=True)
            manager.until_logged("is whole again")
        assert manager.end() == 0
        manager.start()
        with manager.client() as client:
            client.send(SessionOp(1, "get", "s"))
            client.expect(Reply)


async def test_global_that_changes_as_the_file_is_rewritten_is_kept(tmp_path: Path) -> None:
    """What changed since the beginning stands before what the new file says of all of them."""
    async with inside(tmp_path) as here:
        server, hub, journal = here.server, here.hub, here.hub.journal
        hub.globals.change({"a": Raw(b"\x01")})
        hub.save()
        journal.trouble = "for a test"
        server._look_at_file()
        assert journal.rewriting
        hub.globals.change({"b": Raw(b"\x02")})
        hub.save()
        while not journal.step():
            pass
        hub.globals.change({"c": Raw(b"\x03")})
    found = Globals(1000)
    again = Journal(tmp_path / "state")
    again.replay(lambda change: found.load(change) if isinstance(change, GlobalsChanged) else None)
    again.close()
    assert found.data == {"a": Raw(b"\x01"), "b": Raw(b"\x02"), "c": Raw(b"\x03")}
