"""A manager at its limits: a full disk, a deep queue, a client that reads nothing."""

from __future__ import annotations

import re
import resource
import signal
import threading
from pathlib import Path

import msgspec
from msgspec import Raw
from tests.integration.pool.managing import Manager, managed

from cordata.core.pool.codec import encode
from cordata.core.pool.message import CallFrame, Reply, Result, SessionOp
from cordata.core.pool.order import Run

WAITING = 100_000


def limit_files(manager: Manager, size_bytes: int) -> None:
    """No file of the manager's grows above this size: writes beyond it are short, or fail."""
    no_limit = resource.RLIM_INFINITY
    resource.prlimit(manager.process.pid, resource.RLIMIT_FSIZE, (size_bytes, no_limit))


def pss_bytes(pid: int) -> int:
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1]) * 1024


def test_sessions_go_on_in_memory_when_the_disk_is_full_and_are_saved_when_it_heals(
    tmp_path: Path,
) -> None:
    value = Raw(msgspec.msgpack.encode(b"x" * 3000))
    with managed(tmp_path) as manager, manager.client() as client:

        def create(id: str) -> None:
            client.send(SessionOp(1, "create", id, set={"v": value}))
            client.expect(Reply)

        create("before")
        limit_files(manager, 5000)  # the second one fits in part
        create("during")
        manager.until_logged("sessions are not saved")
        assert manager.status()["journal"]["degraded"]
        client.send(SessionOp(2, "get", "during"))
        assert client.expect(Reply).set["v"] == value
        size = (manager.state / "pool" / "sessions.journal").stat().st_size
        assert size < 5000  # whole records only
        limit_files(manager, resource.RLIM_INFINITY)
        create("after")
        manager.until_logged("is whole again")
        manager.end(signal.SIGKILL)
        manager.start()
        with manager.client() as again:
            for id in ("before", "during", "after"):
                again.send(SessionOp(3, "get", id))
                assert again.expect(Reply).set["v"] == value


def test_manager_stays_small_with_many_waiting_calls(tmp_path: Path) -> None:
    settings = f"[pool]\nmax_waiting = {WAITING}\n"
    payload = Raw(msgspec.msgpack.encode("x" * 100))
    with managed(tmp_path, settings) as manager, manager.client() as client:
        calls = b"".join(encode(CallFrame(id, "echo", payload)) for id in range(1, WAITING + 1))
        client.socket.settimeout(60)
        client.raw(calls)
        manager.until(lambda found: found["calls"] == WAITING, "all are there")
        assert manager.status()["pools"]["default"]["waiting"] == WAITING
        assert pss_bytes(manager.process.pid) <= 300 * 1024 * 1024
        with manager.child() as child:
            for id in range(1, 101):
                assert child.expect(Run).id == id
                child.send(Result(id))
                assert client.expect(Result).id == id
        client.close()
        manager.until(
            lambda found: not found["pools"]["default"]["waiting"], "they go with their client"
        )


def test_answers_of_other_clients_go_on_while_one_reads_nothing(tmp_path: Path) -> None:
    large = Raw(msgspec.msgpack.encode(b"x" * 2_000_000))
    with managed(tmp_path) as manager, manager.child() as child:
        deaf, other = manager.client(), manager.client()

        def answer() -> None:
            for _ in range(3):
                run = child.expect(Run, timeout_s=20)
                child.socket.settimeout(20)
                child.send(Result(run.id, large))

        thread = threading.Thread(target=answer)
        thread.start()
        deaf.send(CallFrame(1, "echo"))
        deaf.send(CallFrame(2, "echo"))
        manager.until(lambda found: found["connections"]["blocked"], "it reads nothing")
        other.send(CallFrame(3, "echo"))
        assert other.expect(Result, timeout_s=20).id == 3
        thread.join(20)
        assert deaf.expect(Result).id == 1
        assert deaf.expect(Result).id == 2
        deaf.close()
        other.close()
