"""Clients in processes that fork: each process has connections of its own.

As gunicorn does with `preload_app`, or multiprocessing with its start method "fork".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.contract.pool.running import running
from tests.servers.reaper import watched
from tests.waiting import until

from cordata.pool import SyncClient

APP = "tests.integration.pool.worker.pooled:app"
ROOT = Path(__file__).parents[4]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
#: Runs `work(name)` here and in two children at the same time; 1 when it fails anywhere.
_FORK = """
import os, signal, sys, traceback

def everywhere(work):
    pids = []
    for name in ("first", "second"):
        if not (pid := os.fork()):
            pids = None
            break
        pids.append(pid)
    else:
        name = "parent"
    try:
        work(name)
        failed = 0
    except BaseException:
        print(name, "failed:", file=sys.stderr)
        traceback.print_exc()
        failed = 1
    if pids is None:
        sys.stderr.flush()
        os._exit(failed)
    failed += sum(os.waitpid(pid, 0)[1] for pid in pids)
    sys.exit(1 if failed else 0)
"""

_SYNC = """
from cordata.pool import SyncClient
client = SyncClient(sys.argv[1], timeout=30.0)
assert client.execute("echo", "before") == "before"
client.globals.set(season="winter")

def work(name):
    for number in range(200):
        assert client.execute("echo", [name, number]) == [name, number]
        assert list(client.stream("numbers", 3)) == [0, 1, 2]
    assert client.globals.get("season") == {"season": "winter"}
    client.close()

everywhere(work)
"""

_THREAD = """
import pathlib, threading, time
from cordata.pool import SyncClient
client = SyncClient(sys.argv[1], timeout=30.0)
file = pathlib.Path(sys.argv[2])
found = []
thread = threading.Thread(target=lambda: found.append(client.execute("note", [str(file), 7, 1.0])))
thread.start()
while not file.exists():
    time.sleep(0.01)

def work(name):
    assert client.execute("echo", name, timeout=20.0) == name
    if name == "parent":
        thread.join()
        assert found == [7]

everywhere(work)
"""

_LOCK = """
import threading
from cordata.pool import SyncClient
client = SyncClient(sys.argv[1], timeout=30.0)
assert client.execute("echo", "before") == "before"
taken, forked = threading.Event(), threading.Event()

def hold():
    with client._lock:
        taken.set()
        forked.wait()

thread = threading.Thread(target=hold)
thread.start()
taken.wait()

def work(name):
    if name == "parent":
        forked.set()
        thread.join()
    else:
        signal.alarm(60)  # if it waits for the lock
    assert client.execute("echo", name) == name

everywhere(work)
"""

#: Prints the pid of a fork when its call runs; both wait to be killed.
_KILLED = """
import time
from cordata.pool import SyncClient
client = SyncClient(sys.argv[1], timeout=600.0)
call = client.submit("wait", 600.0)
while not any(child["command"] for one in client.status()["workers"] for child in one["children"]):
    time.sleep(0.01)
if pid := os.fork():
    print(pid, flush=True)
time.sleep(600.0)
"""

_STREAM = """
from cordata.errors import PoolClosed
from cordata.pool import SyncClient
client = SyncClient(sys.argv[1], timeout=30.0, hard_cancel=True)
parts = client.stream("numbers", 50, credit=4)
assert next(parts) == 0

def work(name):
    if name == "parent":
        for pid in waiting:
            assert os.waitpid(pid, 0)[1] == 0
        assert list(parts) == list(range(1, 50))
        return
    try:
        next(parts)
    except PoolClosed as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("a stream of another process was read")

waiting = []
for name in ("first", "second"):
    if not (pid := os.fork()):
        work(name)
        sys.exit(0)
    waiting.append(pid)
work("parent")
"""

_ASYNC = """
import asyncio
from cordata.errors import PoolClosed
from cordata.pool import Client
client = Client(sys.argv[1], timeout=30.0)
loop = asyncio.new_event_loop()

async def calls(name):
    for start in range(0, 400, 8):
        numbers = range(start, start + 8)
        found = await asyncio.gather(*(client.execute("echo", [name, n]) for n in numbers))
        assert found == [[name, number] for number in numbers], found

async def begin():
    await calls("before")
    return client.start("wait", 0.5)

begun = loop.run_until_complete(begin())

async def inherited():
    await begun

def work(name):
    if name == "parent":
        loop.run_until_complete(calls(name))
        loop.run_until_complete(inherited())
        return
    asyncio.run(calls(name))
    try:
        asyncio.run(inherited())
    except PoolClosed as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("a call of another process was awaited")

everywhere(work)
"""


def command(tmp_path: Path, path: Path, code: str) -> list[str]:
    argv = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK + code]
    return [*argv, str(path), str(tmp_path / "noted")]


def run(tmp_path: Path, code: str) -> None:
    with running(tmp_path, app=APP) as path:
        argv = command(tmp_path, path, code)
        done = subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "never retrieved" not in done.stderr


def test_each_process_gets_its_own_results_when_a_sync_client_was_used_before_the_fork(
    tmp_path: Path,
) -> None:
    run(tmp_path, _SYNC)


def test_fork_during_the_call_of_another_thread_blocks_no_call_of_the_child(
    tmp_path: Path,
) -> None:
    run(tmp_path, _THREAD)


def test_fork_while_another_thread_holds_the_lock_of_a_client_blocks_no_call_of_the_child(
    tmp_path: Path,
) -> None:
    run(tmp_path, _LOCK)


def test_call_ends_when_its_process_is_killed_although_a_fork_of_that_lives(
    tmp_path: Path,
) -> None:
    with running(tmp_path, app=APP) as path, SyncClient(path, timeout=60.0) as client:

        def commands() -> list[str]:
            workers = client.status()["workers"]
            return [child["command"] for one in workers for child in one["children"]]

        argv = command(tmp_path, path, _KILLED)
        begun = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        with watched(begun) as caller:
            assert caller.stdout is not None
            fork = int(caller.stdout.readline())
            try:
                assert "wait" in commands()
                caller.kill()
                until(lambda: not any(commands()), timeout_s=30.0)  # it would run for 600 s
            finally:
                caller.kill()
                os.kill(fork, signal.SIGKILL)


def test_stream_goes_on_where_it_was_begun_and_is_refused_in_the_fork(tmp_path: Path) -> None:
    run(tmp_path, _STREAM)


def test_each_process_gets_its_own_results_when_an_async_client_was_used_before_the_fork(
    tmp_path: Path,
) -> None:
    run(tmp_path, _ASYNC)
