"""A real manager, real workers and their real children; only the clients are scripted."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Raw, msgpack
from tests.integration.cli.command import cordata
from tests.integration.pool import managing
from tests.integration.pool.managing import Manager
from tests.integration.pool.peer import Peer
from tests.integration.server.managed import Managed, managed
from tests.integration.server.running import wait_gone

from cordata import PoolError
from cordata.core.pool.message import (
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    End,
    ErrorFrame,
    Reply,
    Result,
    SessionOp,
)
from cordata.pool import SyncClient

APP = "tests.integration.pool.worker.pooled:app"
QUICK = "restart_min_s = 0.01\nrestart_max_s = 0.1\nkill_grace_s = 0.5\ncancel_grace_s = 0.3\n"


class Together:
    """One manager; workers come and go."""

    def __init__(self, directory: Path, manager: Manager, settings: str, app: str = APP) -> None:
        self.manager = manager
        self.config = directory / "worker.toml"
        (directory / "store").mkdir()
        self.config.write_text(
            f'[app]\nimport = "{app}"\n[worker]\nservices = ["engine", "pool"]\n'
            f'[paths]\nstate = "{directory / "store"}"\nruntime = "{manager.runtime}"\n'
            f"[pool]\n{settings}"
        )
        assert cordata("migrate", "--config", str(self.config)).returncode == 0

    @contextmanager
    def worker(self, name: str = "0", **environment: str) -> Iterator[Managed]:
        with managed(self.config, "worker", name, **environment) as worker:
            worker.until(lambda message: message.get("STATUS") == "ready")
            yield worker


@contextmanager
def together(directory: Path, settings: str = "", app: str = APP) -> Iterator[Together]:
    settings = QUICK + settings
    with managing.managed(directory, f"[pool]\n{settings}") as manager:
        yield Together(directory, manager, settings, app)


def send(client: Peer, command: str, payload: Any = None, *, id: int = 1, **fields: Any) -> None:
    frame = CallFrame(id=id, command=command, payload=Raw(msgpack.encode(payload)), **fields)
    client.send(frame)


def call(client: Peer, command: str, payload: Any = None, **fields: Any) -> Any:
    send(client, command, payload, **fields)
    return msgpack.decode(client.expect(Result, 20.0).payload)


def refused(client: Peer, command: str, payload: Any = None, **fields: Any) -> ErrorFrame:
    send(client, command, payload, **fields)
    return client.expect(ErrorFrame, 20.0)


def test_calls_come_through(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker() as worker, all_.manager.client() as client:
        for number in range(200):
            assert call(client, "echo", number) == number
        about = call(client, "about", request_id="r-7")
        assert about["request_id"] == ["r-7", "r-7"]
        assert about["id"].endswith("-201")
        error = refused(client, "die", None)
        assert (error.code, error.data["type"]) == ("failed", "TypeError")
        assert refused(client, "nothing").code == "unknown_command"
        send(client, "numbers", 3, credits=1)
        assert msgpack.decode(client.expect(Chunk).payload) == 0
        client.send(Credit(id=1, n=9))
        assert [msgpack.decode(client.expect(Chunk).payload) for _ in "ab"] == [1, 2]
        client.expect(End)
        code, _ = worker.stop()
        assert code == 0
        status = all_.manager.until(lambda status: not status["workers"] and status, "it is gone")
        transitions = status["transitions"]
        assert transitions.get("ready -> terminating") == 1, transitions


def test_session_lives_through_child_and_manager(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        with all_.manager.client() as client:
            client.send(SessionOp(id=1, op="create", s="s"))
            client.expect(Reply)
            for number in range(3):
                orders = {"set": {"n": number}, "count": {"seen": 1}, "gset": {"g": number}}
                call(client, "remember", orders, session="s")
            pid = call(client, "about")["pid"]
            os.kill(pid, signal.SIGKILL)
            before = call(client, "remember", {}, session="s")
            assert (before["data"], before["counters"]) == ({"n": 2}, {"seen": 3})
            assert before["globals"] == {"g": 2}
            pid = call(client, "about")["pid"]
        assert all_.manager.end(signal.SIGKILL) != 0
        all_.manager.start()
        with all_.manager.client() as client:
            before = call(client, "remember", {}, session="s")
            assert (before["data"], before["counters"]) == ({"n": 2}, {"seen": 3})
            assert before["globals"] == {"g": 2}
            assert call(client, "about")["pid"] == pid  # the same child came back


def test_death_in_a_call_is_told_at_once(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker(), all_.manager.client() as client:
        began = time.monotonic()
        error = refused(client, "die", int(signal.SIGSEGV))
        assert time.monotonic() - began < 1.0
        assert (error.code, error.data["signal"], error.data["lines"]) == (
            *("crashed", int(signal.SIGSEGV)),
            ["last words"],
        )
        error = refused(client, "die", "exit")
        assert (error.data["exit_code"], error.data["signal"]) == (3, None)
        assert call(client, "echo", 1) == 1
        # Another's death: an idempotent call is run again, by the next child.
        pid = call(client, "about")["pid"]
        send(client, "wait", 0.5, idempotent=True)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        assert msgpack.decode(client.expect(Result).payload) == "done"


def test_hang_ends_at_its_deadline_and_its_child_after_the_grace(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker(), all_.manager.client() as client:
        pid = call(client, "about")["pid"]
        began = time.monotonic()
        error = refused(client, "hang", timeout_s=0.5)
        assert 0.5 <= time.monotonic() - began < 0.8
        assert (error.code, error.data) == ("deadline", {"ran": True})
        assert call(client, "about")["pid"] != pid
        assert 0.9 <= time.monotonic() - began < 2.5
        wait_gone([pid])


def test_cancel_is_soft_or_hard(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker(), all_.manager.client() as client:
        pid = call(client, "about")["pid"]
        send(client, "wait", 30.0, id=5)
        client.send(Cancel(id=5))
        assert client.expect(ErrorFrame).code == "cancelled"
        assert call(client, "about")["pid"] == pid
        send(client, "hang", id=6)
        time.sleep(0.1)
        client.send(Cancel(id=6, hard=True))
        assert client.expect(ErrorFrame).code == "cancelled"
        assert call(client, "about")["pid"] != pid


class Flow(threading.Thread):
    """A client that calls all the time; its longest wait, and every pid that it met."""

    def __init__(self, manager: Manager, *, lasting_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.lasting_s = lasting_s
        self.client = manager.client()
        self.over = threading.Event()
        self.pids: dict[int, None] = {}
        self.calls = 0
        self.longest_s = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                began = time.monotonic()
                self.pids.setdefault(call(self.client, "about", self.lasting_s)["pid"])
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.calls += 1
        except BaseException as error:  # noqa: BLE001 - for the test's thread
            self.error = error

    def finish(self) -> None:
        self.over.set()
        self.join(20.0)
        self.client.close()
        assert self.error is None, repr(self.error)
        assert self.calls


def test_recycling_leaves_no_gap(tmp_path: Path) -> None:
    with together(tmp_path, "max_calls = 150\n") as all_, all_.worker(POOLED_INIT_S="1"):
        flow = Flow(all_.manager)
        flow.start()
        deadline = time.monotonic() + 20.0
        while len(flow.pids) < 4 and flow.is_alive():
            assert time.monotonic() < deadline, flow.pids
            time.sleep(0.02)
        flow.finish()
        print(f"{flow.calls} calls by {len(flow.pids)} children, {flow.longest_s * 1e3:.0f} ms")
        assert flow.longest_s < 0.9  # a start takes a second, so nobody waited for one
        wait_gone(list(flow.pids)[:-2])


def recycled(all_: Together) -> tuple[int, int]:
    """The pids before and after `cordata pool recycle --wait`."""
    argv = ("pool", "recycle", "0", "--wait", "--json", "--config", str(all_.config))
    result = cordata(*argv)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    return told["former"], told["child"]


def test_who_recycles_can_wait_for_the_other_child_but_not_for_the_call_in_hand(
    tmp_path: Path,
) -> None:
    with together(tmp_path) as all_, all_.manager.client() as client:
        with all_.worker(POOLED_INIT_S="0.5"):
            first = call(client, "about")["pid"]
            send(client, "wait", 60, id=7, timeout_s=70.0)
            all_.manager.until(lambda found: found["pools"]["default"]["busy"], "it is begun")
            former, second = recycled(all_)
            assert former == first != second
            assert call(client, "about")["pid"] == second
            # The first one still has its call, and is not the one that is meant now.
            former, third = recycled(all_)
            assert former == second and third not in (first, second)
            assert call(client, "about")["pid"] == third
            (worker,) = all_.manager.status()["workers"]
            assert first in {child["pid"] for child in worker["children"]}
            client.send(Cancel(7))
            assert client.expect(ErrorFrame, 20.0).code == "cancelled"


def test_who_waits_for_another_child_hears_why_none_comes(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    with together(tmp_path) as all_, all_.worker(POOLED_BROKEN=str(broken)):
        broken.touch()
        with ThreadPoolExecutor(1) as executor:
            argv = ("pool", "recycle", "0", "--wait", "--config", str(all_.config))
            waiting = executor.submit(cordata, *argv)
            # It looks ten times a second, and a start takes longer.
            all_.manager.until(
                lambda found: found["restarts"].get("init", 0) >= 3, "several did not start"
            )
            broken.unlink()
            result = waiting.result()
    assert (result.returncode, result.stdout[:19]) == (0, "worker 0 has child ")
    said = "still waiting: no other child of worker 0 starts: FileExistsError"
    assert result.stderr.startswith(said)


def test_ends_of_children_are_counted_as_what_they_are(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.manager.client() as client:
        with all_.worker() as worker:
            pid = call(client, "about")["pid"]
            os.kill(pid, signal.SIGKILL)
            assert call(client, "about")["pid"] != pid
            assert refused(client, "hang", timeout_s=0.1).code == "deadline"
            pid = call(client, "about")["pid"]
            assert cordata("pool", "recycle", "0", "--config", str(all_.config)).returncode == 0
            all_.manager.until(lambda found: found["stops"] == 1, "the former leaves in order")
            assert call(client, "about")["pid"] != pid
            (child,) = all_.manager.status()["workers"][0]["children"]
            assert child["rss_bytes"] > 1_000_000
            assert 0 < child["age_s"] < 60
            worker.stop()
        found = all_.manager.until(lambda found: not found["workers"] and found, "it is gone")
        assert found["restarts"] == {"crash": 1, "deadline": 1}
        assert (found["recycles"], found["stops"]) == ({"asked for": 1}, 2)
        # The hanging one was seen to be unhealthy before it was killed.
        assert found["transitions"]["busy -> unhealthy"] == 1
        assert found["transitions"]["unhealthy -> restarting"] == 1


def test_stopped_worker_loses_no_call(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker("1"):
        # Very short calls would share the one child.
        flows = [Flow(all_.manager, lasting_s=0.002) for _ in range(4)]
        for flow in flows:
            flow.start()
        for _ in range(2):
            with all_.worker("0") as worker:
                time.sleep(0.3)
                assert worker.stop()[0] == 0
        for flow in flows:
            flow.finish()
        assert len({pid for flow in flows for pid in flow.pids}) == 3


def test_stopped_worker_does_not_wait_for_a_call_that_nobody_waits_for(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.manager.client() as client, all_.worker() as worker:
        send(client, "hang")
        all_.manager.until(lambda s: s["workers"][0]["children"][0].get("call"), "it runs")
        client.send(Cancel(1))
        assert client.expect(ErrorFrame).code == "cancelled"
        code, _ = worker.stop()
        assert code == 0  # 1 when its child does not end in 30 s


def test_killed_worker_takes_its_child_along(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.manager.client() as client:
        with all_.worker() as worker:
            pid = call(client, "about")["pid"]
            send(client, "hang", id=2)
            time.sleep(0.2)
            worker.process.kill()
            error = client.expect(ErrorFrame)
            assert (error.code, error.data["worker"], error.data["signal"]) == (
                "crashed",
                "0",
                None,
            )
            wait_gone([pid])
        send(client, "echo", "waited", id=3)
        with all_.worker():
            assert msgpack.decode(client.expect(Result, 20.0).payload) == "waited"
        all_.manager.until(lambda status: not status.get("workers"), "no worker is known")


def test_second_worker_of_a_name_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.manager.client() as client, all_.worker() as first:
        pid = call(client, "about")["pid"]
        with managed(all_.config, "worker", "0") as second:
            second.until_ready()
            refusal = f"process {second.process.pid} was refused: worker 0 is process "
            all_.manager.until_logged(refusal + str(first.process.pid))
            for _ in range(20):
                assert call(client, "about")["pid"] == pid
            assert all_.manager.status()["workers"][0]["pid"] == first.process.pid
            first.process.kill()
            wait_gone([pid])
            assert call(client, "about", idempotent=True)["pid"] != pid
            pids = [second.process.pid]
            all_.manager.until(lambda s: [one["pid"] for one in s["workers"]] == pids, "the second")


def test_killed_manager_comes_back_to_its_children(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        for _ in range(3):
            with all_.manager.client() as client:
                for number in range(20):
                    send(client, "echo", number, id=number)
                pids = set()
                for _ in range(20):
                    client.expect(Result)
                for number in range(2):
                    send(client, "wait", 0.2, id=number)
                for _ in "ab":
                    client.expect(Result)
                pids.add(call(client, "about")["pid"])
            assert all_.manager.end(signal.SIGKILL) != 0
            all_.manager.start()
        with all_.manager.client() as client:
            assert call(client, "echo", 1) == 1


def test_no_call_is_lost_between_a_manager_and_the_next_one(tmp_path: Path) -> None:
    """None is declared to run twice: what was sent as the manager left is answered, or refused."""
    over, counts = threading.Event(), Counter[int]()
    failures: list[str] = []

    def calling(path: Path, number: int) -> None:
        with SyncClient(path, timeout=30.0) as client:
            while not over.is_set():
                try:
                    assert client.execute("echo", number) == number
                    counts[number] += 1
                except PoolError as error:
                    failures.append(repr(error))

    with together(tmp_path) as all_, all_.worker("0"), all_.worker("1"):
        path = all_.manager.path
        threads = [threading.Thread(target=calling, args=[path, number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(6):
            all_.manager.until(lambda found: found["calls"] > 20, "it is called")
            assert all_.manager.end() == 0
            all_.manager.start()
        over.set()
        for thread in threads:
            thread.join(40.0)
    assert not failures, failures[:5]
    assert len(counts) == 6
