"""What was started in the background does not outlive its starter, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.servers.process import is_alive, signal_all, unreadably_named
from tests.servers.reaper import watched
from tests.waiting import until

CHECKOUT = Path(__file__).resolve().parents[3]
_START = """
import subprocess, sys, threading, time
from tests.servers.process import children
from tests.servers.reaper import watched
from tests.waiting import until

def start(script, below, session):
    process = subprocess.Popen(["sh", "-c", script], start_new_session=session)
    started.append(watched(process, then=sys.argv[1]))
    until(lambda: len(children(process.pid)) == below, what="its children")
    started.extend(children(process.pid))

started = []
"""
#: A thread that has ended by now started them: that is the end of nothing yet.
_TREES = """
for words in (("sleep 600 & sleep 600 & wait", 2, False), ("sleep 600 & sleep 600; :", 2, True)):
    thread = threading.Thread(target=start, args=words)
    thread.start()
    thread.join()
print(*(getattr(one, "pid", one) for one in started), flush=True)
time.sleep(600)
"""
#: The second `sleep` has no parent any more when its starter dies: only the session has it. The
#: starter tells of both, once it has heard of them and has had them watched.
_ORPHAN = """
script = "sh -c 'sleep 600 & echo $!' | { read orphan; echo $$ $orphan; sleep 600; }"
shell = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
print(watched(shell).stdout.readline().decode(), end="", flush=True)
time.sleep(600)
"""
_SWEPT = """
import pathlib, sys, time
from tests.servers.reaper import swept, terminated_in_order
directory = pathlib.Path(sys.argv[1])
terminated_in_order()
swept(directory / "all")
try:
    print(flush=True)
    time.sleep(600)
finally:
    (directory / "end").touch()
"""


@contextmanager
def starter(script: str, argument: object) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that runs the script, and the pids that it printed."""
    command = [sys.executable, "-c", script, str(argument)]
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'daemon'}:{CHECKOUT}"}
    pids: list[int] = []
    with watched(
        subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True)
    ) as process:
        try:
            assert process.stdout is not None
            pids += map(int, process.stdout.readline().split())
            yield process, pids
        finally:
            process.kill()
            signal_all(filter(is_alive, pids), signal.SIGKILL)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_processes_and_their_children_when_the_starter_is_killed(
    tmp_path: Path, how: signal.Signals
) -> None:
    note = tmp_path / "note"
    with starter(_START + _TREES, f"touch {note}") as (process, pids):
        assert len(pids) == len(alive(pids)) == 6
        process.send_signal(how)
        until(lambda: not alive(pids) and note.exists(), what="their end")


def test_nothing_is_left_of_a_session_when_the_starter_is_killed(tmp_path: Path) -> None:
    """Beside a process whose name is no text: each of the machine is looked at."""
    with unreadably_named(), starter(_START + _ORPHAN, tmp_path) as (process, pids):
        assert len(pids) == len(alive(pids)) == 2
        process.kill()
        until(lambda: not alive(pids), what="their end")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_directory_is_gone_when_its_owner_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    swept, end = tmp_path / "all", tmp_path / "end"
    (swept / "below").mkdir(parents=True)
    with starter(_SWEPT, tmp_path) as (process, _):
        assert swept.exists()
        process.send_signal(how)
        until(lambda: not swept.exists(), what="its end")
        assert process.wait(60) in (-signal.SIGKILL, 128 + signal.SIGTERM)
        assert end.exists() == (how == signal.SIGTERM)  # it could still tidy up


def test_a_process_goes_on_when_its_number_was_anothers(tmp_path: Path) -> None:
    """The starter has waited for what it started; a process of that number is somebody else's."""
    script = (
        "import sys\nfrom tests.servers import reaper\n"
        "reaper._pipe.write({'pid': int(sys.argv[1]), 'begun': '1', 'then': ''})\nprint()\n"
    )
    with (
        watched(subprocess.Popen(["sleep", "600"], start_new_session=True)) as other,
        starter(script, other.pid) as (process, _),
    ):
        assert process.wait(60) == 0  # which waits for the reaper
        assert is_alive(other.pid)
        other.kill()
