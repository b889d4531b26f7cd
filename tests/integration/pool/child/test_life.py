"""A child's start and end, what it weighs and what it says."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from tests.integration.cli.command import python
from tests.integration.pool.child.born import (
    COMMANDS,
    born,
    call,
    failure,
    order,
    result,
    serving,
)
from tests.integration.pool.peer import Listening

from cordata.core.pool.message import Ping, Pong, Result
from cordata.core.pool.order import Adopt, Due, Failed, Ready, Stop, Up

PSS_BYTES = 20_000_000


def test_child_warms_up_without_a_manager(tmp_path: Path) -> None:
    with Listening(tmp_path / "pool.sock") as manager:
        manager.close()
        with born(manager) as child:
            child.channel.expect(Up)
            with Listening(tmp_path / "pool.sock") as second:
                peer, hello = second.welcome()
                assert hello.warm
                assert min(hello.cmds) == "about"
                peer.close()


def test_child_answers_its_worker_between_calls(tmp_path: Path) -> None:
    with serving(tmp_path) as (child, peer):
        child.channel.send(Ping(id=1))
        assert child.channel.expect(Pong).id == 1
        peer.send(order("wait", 0.3))
        while not child.hand.busy:
            time.sleep(0.005)
        child.channel.send(Ping(id=2))
        child.channel.send(Stop())
        assert child.channel.silent(0.1)
        peer.expect(Result)
        assert child.channel.expect(Pong).id == 2
        assert child.exited() == 0
        assert peer.closed()


def test_child_ends_with_its_channel(tmp_path: Path) -> None:
    with serving(tmp_path) as (child, _):
        child.spawned.channel.close()
        assert child.exited() == 1
    with serving(tmp_path) as (child, peer):
        peer.send(order("endless", credits=1))
        while not child.hand.busy:
            time.sleep(0.005)
        time.sleep(0.05)
        child.spawned.channel.close()
        assert child.exited() == 1


def test_adopted_spare_says_so_to_the_next_manager(tmp_path: Path) -> None:
    with Listening(tmp_path / "pool.sock") as manager, born(manager, spare=True) as child:
        peer, hello = manager.welcome()
        assert hello.spare
        child.channel.expect(Up)
        peer.expect(Ready)
        child.channel.send(Adopt())
        child.channel.send(Ping(id=1))
        child.channel.expect(Pong)
        peer.close()
        peer, hello = manager.welcome()
        assert (hello.spare, hello.warm) == (False, True)
        peer.close()


def test_child_says_that_it_is_due(tmp_path: Path) -> None:
    with serving(tmp_path, max_calls=2) as (child, peer):
        result(peer, "echo")
        assert child.channel.silent(0.05)
        result(peer, "echo")
        assert child.channel.expect(Due).why == "max_calls: 2 calls"
        assert call(peer, "echo", 3) == 3
        assert child.channel.silent(0.05)


def test_child_that_cannot_warm_up_says_why(tmp_path: Path) -> None:
    with Listening(tmp_path / "pool.sock") as manager:
        with born(manager, inits=(f"{COMMANDS}:broken_init",)) as child:
            failed = child.channel.expect(Failed)
            assert re.fullmatch(r"RuntimeError at commands\.py:\d+", failed.m)
            assert "in broken_init" in failed.trace and "no fonts" not in failed.trace
            assert child.exited() == 1
            child.written("half way")
        with born(manager, inits=(f"{COMMANDS}:broken_init",), log_level="DEBUG") as child:
            failed = child.channel.expect(Failed)
            assert failed.m == "RuntimeError: no fonts"
            assert failed.trace.endswith("no fonts\n")
        with born(manager, commands={"x": f"{COMMANDS}:not_there"}) as child:
            assert "there is no function" in child.channel.expect(Failed).m


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_trace_of_a_missing_module_is_without_the_frames_of_the_import(
    tmp_path: Path, level: str
) -> None:
    with (
        Listening(tmp_path / "pool.sock") as manager,
        born(manager, commands={"x": "not_there:x"}, log_level=level) as child,
    ):
        failed = child.channel.expect(Failed)
        assert failed.m == "ModuleNotFoundError: No module named 'not_there'"
        assert "calling.py" in failed.trace and "<frozen importlib" not in failed.trace


def test_death_in_a_call_leaves_its_traces(tmp_path: Path) -> None:
    for order_, status in (("exit", 3), (int(signal.SIGSEGV), -int(signal.SIGSEGV))):
        with serving(tmp_path) as (child, peer):
            peer.send(order("die", order_, n=77))
            assert child.exited() == status
            assert (child.hand.serial, child.hand.busy) == (77, True)
            child.written("last words")
            assert peer.closed()


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("abort", 1), ("interrupt", 1)])
def test_command_that_ends_its_process_does_so_at_once_whatever_threads_it_left(
    tmp_path: Path, how: str, status: int
) -> None:
    with serving(tmp_path) as (child, peer):
        peer.send(order("leave_a_thread", how, n=5))
        assert child.exited(5.0) == status
        assert (child.hand.serial, child.hand.busy) == (5, True)
        assert peer.closed()


SECRET = "eva@example.com"
#: How a command fails beside its call, and what is told of it.
LEAKS = {
    "log": "<3>shop.pdf: no rate",
    "arguments": "a log call at ",
    "thread": "failed with KeyError",
    "object": "LookupError in ",
    "task": "exception was never retrieved",
    "exit": "the process ends by SystemExit",
    "abort": "the process ends by Abort",
}


@pytest.mark.parametrize("how", LEAKS)
def test_output_tells_no_message_of_an_exception(tmp_path: Path, how: str) -> None:
    command = "leak_async" if how == "task" else "leak"
    for level in ("INFO", "DEBUG"):
        with serving(tmp_path, log_level=level) as (child, peer):
            peer.send(order(command, [how, SECRET], n=5))
            if how in ("exit", "abort"):
                assert child.exited() == 1
            else:
                peer.expect(Result)
            child.written(LEAKS[how])
            text = child.drained()
            # A failed log call tells its place, at whatever level.
            assert (SECRET in text) is (level == "DEBUG" and how != "arguments"), text
            assert "commands.py:" in text or level == "DEBUG"


def test_output_carries_the_mark_of_its_call(tmp_path: Path) -> None:
    with serving(tmp_path) as (child, peer):
        result(peer, "echo", n=1)
        result(peer, "speak", "a", n=2, request_id="r-9")
        result(peer, "speak_raw", n=3)
        text = child.written("raw\n")
        result(peer, "speak", "b", n=4, request_id="r\n\x1e7 forged")
        assert "\x1e4 \nprinted b\n" in child.written("printed b\n")
        assert text == (
            "\x1e2 r-9\n"
            "printed a\n"
            "to stderr\n"
            "<4>shop.pdf: logged\n"
            "<4>twice\n"
            "unfinished\n"
            "\x1e0 \n"
            "raw\n"
        ), repr(text)


def test_child_is_lean(tmp_path: Path) -> None:
    with serving(tmp_path) as (child, peer):
        assert failure(peer, "nothing").code == "unavailable"
        loaded = set(call(peer, "modules"))
        # The commands of these tests use asyncio themselves.
        heavy = (
            "click",
            "uvloop",
            "cordata.store",
            "cordata.http",
            "cordata.app",
            "cordata.config",
        )
        assert not [name for name in loaded if name.startswith(heavy)]
    with serving(tmp_path, commands={"lean": "tests.integration.pool.child.lean:look"}) as (
        child,
        peer,
    ):
        loaded = set(call(peer, "lean"))
        found = [name for name in loaded if name.startswith((*heavy, "asyncio", "ssl", "email"))]
        assert not found
        rollup = Path(f"/proc/{child.pid}/smaps_rollup").read_text()
        pss = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
        assert pss is not None
        print(f"PSS of a child: {int(pss[1])} kB")
        assert int(pss[1]) * 1024 < PSS_BYTES
        assert set(os.listdir(f"/proc/{child.pid}/fd")) == set("0123456")
        # No thread answers pings while a command hangs: what is answered, the loop has read.
        assert os.listdir(f"/proc/{child.pid}/task") == [str(child.pid)]


_HARDENED = """
import ctypes, sys
from pathlib import Path
from tests.integration.pool.child.born import call, serving

if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE, which a child inherits
    sys.exit("this kernel has no such flag")
with serving(Path(sys.argv[1]), log_level="DEBUG") as (child, peer):
    call(peer, "about_async")
    call(peer, "speak")
    print(child.written("unfinished"))
"""


def test_child_starts_where_no_memory_is_writable_and_executable(tmp_path: Path) -> None:
    """As its unit says by MemoryDenyWriteExecute=; and it asks for its signal all the same."""
    done = python("-c", _HARDENED, str(tmp_path))
    if "no such flag" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "not logged" in done.stdout  # at debug
    assert "no signal" not in done.stdout


def test_child_gets_no_word_with_systemd(tmp_path: Path) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "CORDATA_CONFIG"):
        os.environ[name] = "x"
    try:
        with serving(tmp_path) as (child, _):
            told = Path(f"/proc/{child.pid}/environ").read_text()
            assert "PATH=" in told
            for name in ("NOTIFY_SOCKET", "WATCHDOG_", "CREDENTIALS_", "CORDATA_"):
                assert f"\0{name}" not in f"\0{told}"
    finally:
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "CREDENTIALS_DIRECTORY", "CORDATA_CONFIG"):
            del os.environ[name]
