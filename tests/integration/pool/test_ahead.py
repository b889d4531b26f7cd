"""Calls that were sent ahead to a real child: had back, skipped, and never run twice."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Raw, msgpack
from tests.integration.pool.peer import Peer
from tests.integration.pool.test_together import Together, call, send, together

from cordata.core.pool.codec import encode
from cordata.core.pool.message import CallFrame, Cancel, ErrorFrame, Result
from cordata.core.pool.pace import Pace

#: The slow one among the quick ones.
SLOW_S = 1.5


class Desk:
    """A client that sends many calls at once, of a command that was quick lately."""

    def __init__(self, all_: Together, client: Peer, file: Path) -> None:
        self.manager, self.client, self.file = all_.manager, client, file
        pace = Pace()
        for _ in range(500):
            send(client, "note", [str(file), 0, 0.0])
            pace.ran("note", client.expect(Result, 20.0).x)
            if pace.expected_us("note") < 800:
                break
        file.write_text("")

    def send(self, seconds: dict[int, float], **fields: Any) -> None:
        frames = [
            encode(
                CallFrame(
                    number,
                    "note",
                    Raw(msgpack.encode([str(self.file), number, lasts])),
                    **fields,
                )
            )
            for number, lasts in seconds.items()
        ]
        self.client.raw(b"".join(frames))

    def hear(self, count: int) -> set[int]:
        return {self.client.expect(Result, 20.0).id for _ in range(count)}

    def ran(self) -> list[int]:
        return [int(line) for line in self.file.read_text().split()]


def test_calls_behind_a_slow_one_run_at_once_where_a_child_is_free(tmp_path: Path) -> None:
    with together(tmp_path) as all_, ExitStack() as workers:
        for name in "01":
            workers.enter_context(all_.worker(name))
        with all_.manager.client() as client:
            desk = Desk(all_, client, tmp_path / "ran")
            began = time.monotonic()
            desk.send({100: SLOW_S} | dict.fromkeys(range(101, 109), 0.0))
            assert desk.hear(8) == set(range(101, 109))
            took_s = time.monotonic() - began
            assert took_s < SLOW_S / 2
            print(f"eight calls behind a slow one took {took_s * 1e3:.0f} ms")
            assert desk.hear(1) == {100}
            assert sorted(desk.ran()) == list(range(100, 109))
            status = all_.manager.status()
            assert status["sent_ahead"] > 0
            assert status["had_back"] > 0


def test_killed_child_takes_no_call_along_that_it_had_not_begun(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker(), all_.manager.client() as client:
        pid = call(client, "about")["pid"]
        desk = Desk(all_, client, tmp_path / "ran")
        lost = 0
        for round_ in range(5):
            numbers = range(100 * (round_ + 1), 100 * (round_ + 1) + 40)
            desk.send(dict.fromkeys(numbers, 0.002))
            time.sleep(0.01 * round_)
            os.kill(pid, signal.SIGKILL)
            for _ in numbers:
                said = client.any(20.0)
                if isinstance(said, ErrorFrame):
                    assert said.code == "crashed"
                    lost += 1
                else:
                    assert isinstance(said, Result)
            pid = call(client, "about")["pid"]
        ran = desk.ran()
        assert len(ran) == len(set(ran)), "a call ran twice"
        assert lost <= 5, "a death ends one call"
        assert all_.manager.status()["sent_ahead"] > 0


def test_call_ahead_that_was_cancelled_or_is_late_does_not_run(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker(), all_.manager.client() as client:
        desk = Desk(all_, client, tmp_path / "ran")
        desk.send({100: 0.5})
        desk.send({101: 0.0}, timeout_s=0.2)
        desk.send({102: 0.0, 103: 0.0})
        client.send(Cancel(id=102))
        error = client.expect(ErrorFrame)
        assert (error.id, error.code) == (102, "cancelled")
        error = client.expect(ErrorFrame)
        assert (error.id, error.code, error.data) == (101, "deadline", {"ran": False})
        assert desk.hear(2) == {100, 103}
        assert desk.ran() == [100, 103]
        assert all_.manager.status()["sent_ahead"] > 0


def test_client_that_goes_has_nothing_run_that_lay_ahead(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        with all_.manager.client() as client:
            desk = Desk(all_, client, tmp_path / "ran")
            desk.send({100: 0.3} | dict.fromkeys(range(101, 104), 0.0))
            all_.manager.until(lambda status: desk.ran(), "the first one runs")
        with all_.manager.client() as other:
            assert call(other, "echo", 1) == 1
        assert desk.ran() == [100]
