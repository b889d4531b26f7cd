"""`cordata call` against real workers and children."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.pool.running import running
from tests.integration.cli.command import ROOT, cordata, write_config
from tests.integration.server.managed import managed
from tests.servers.reaper import watched
from tests.waiting import until

from cordata.pool import SyncClient

APP = "tests.integration.cli.called:app"
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", "PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a pool of one worker runs."""
    directory = tmp_path_factory.mktemp("called")
    settings = "[pool]\npoison_limit = 100\ncancel_grace_s = 0.2\nkill_grace_s = 0.2\n"
    with running(directory, app=APP, workers=1, settings=settings):
        yield directory


def call(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cordata("call", *arguments, "--config", str(home / "cordata.toml"))


def child(home: Path) -> dict[str, Any]:
    """The pool's only child, as its worker tells of it."""
    with SyncClient(home / "run" / "pool", timeout=60.0) as client:
        [worker] = client.status()["workers"]
    ready = [one for one in worker["children"] if one["state"] in ("ready", "busy")]
    return dict(ready[0]) if ready else {"pid": 0, "command": ""}


def test_call_prints_the_result_and_passes_the_options_on(home: Path) -> None:
    with SyncClient(home / "run" / "pool", timeout=60.0) as client:
        client.sessions.create("s")
    options = ("--session", "s", "--timeout", "30", "--idempotent", "--priority", "2")
    result = call(home, "about", "--json", "[1, 2]", *options)
    assert (result.returncode, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert (told["command"], told["session"]) == ("about", "s")
    assert 0 < told["remaining"] <= 30.0
    assert json.loads(call(home, "echo", "--json", '{"total": 3}').stdout) == {"total": 3}


def test_stream_prints_a_line_for_each_part(home: Path, tmp_path: Path) -> None:
    payload = tmp_path / "payload.json"
    payload.write_text("3")
    result = call(home, "numbers", "--file", str(payload), "--stream")
    assert result.stdout.splitlines() == ["0", "1", "2"]


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "stream"])
def test_full_disk_is_said_to_be_one_when_the_result_is_written(
    home: Path, options: tuple[str, ...]
) -> None:
    command = "numbers" if options else "echo"
    argv = [sys.executable, "-m", "cordata", "call", command, "--json", "3"]
    argv += ["--config", str(home / "cordata.toml"), *options]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            argv, env=ENVIRONMENT, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write the output: No space left on device\n")
    assert "bug" not in done.stderr


def test_failed_call_says_what_is_known_and_its_traceback_with_debug_only(home: Path) -> None:
    result = call(home, "fail", "--json", '"value"')
    assert result.returncode == 1
    hint = "hint: it raised ValueError; --debug shows where"
    assert result.stderr.splitlines()[1:] == [hint]
    assert result.stderr.startswith("error: no value")
    debugged = call(home, "fail", "--json", '"value"', "--debug").stderr
    assert "commands.py" in debugged and debugged.count("Traceback") == 1


def test_crashed_call_says_what_was_written_last(home: Path) -> None:
    result = call(home, "die", "--json", str(int(signal.SIGKILL)))
    assert (result.returncode, result.stdout) == (1, "")
    assert re.match(r"error: the child \d+ of worker 0 was killed by SIGKILL\n", result.stderr)
    assert result.stderr.endswith("it wrote last:\n  last words\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [("ecko", "did you mean 'echo'?"), ("xyz", "`cordata pool status` shows the names of all")],
    ids=["near", "none"],
)
def test_call_of_an_unknown_command_says_what_to_do(home: Path, name: str, told: str) -> None:
    result = call(home, name)
    assert result.returncode == 1
    assert result.stderr.splitlines()[1:] == [f"hint: {told}"]


def test_call_in_a_session_that_is_gone_says_where_to_look(home: Path) -> None:
    result = call(home, "echo", "--session", "no such")
    assert result.returncode == 1 and "`cordata pool sessions`" in result.stderr


def test_call_that_finds_no_free_child_in_time_may_be_tried_again(home: Path) -> None:
    with SyncClient(home / "run" / "pool", timeout=60.0) as client:
        blocking = client.submit("wait", 60.0)
        until(lambda: child(home)["command"] == "wait")
        result = call(home, "echo", "--timeout", "0.3")
        assert (result.returncode, result.stdout) == (75, "")
        blocking.cancel()
    late = call(home, "hang", "--timeout", "2")
    assert late.returncode == 1  # it ran, and would again take too long


def test_call_says_that_nobody_answers_when_there_is_no_pool(tmp_path: Path) -> None:
    result = cordata("call", "sum", "--timeout", "0.1", "--state-dir", str(tmp_path))
    assert result.returncode == 75
    told = r"there is no .*/run/pool yet, waiting up to 0.1 s\nhint: start workers, .*\n"
    assert re.fullmatch(told + "error: no worker answered in .*\n", result.stderr)


@pytest.mark.parametrize("stale", [False, True], ids=["none", "stale"])
def test_call_gives_up_soon_where_nobody_listens(tmp_path: Path, stale: bool) -> None:
    directory = tmp_path / "run" / "pool" / "default"
    (directory if stale else tmp_path / "run").mkdir(parents=True)
    if stale:  # as a killed server leaves it
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(str(directory / "0.control.sock"))
    result = cordata("call", "sum", "--state-dir", str(tmp_path))
    assert (result.returncode, result.stdout) == (75, "")
    reason = "no worker listens in" if stale else "there is no"
    assert result.stderr.startswith(f"{reason} {tmp_path}/run/pool yet, waiting up to 5 s\n")


def test_call_is_taken_by_a_worker_that_comes_meanwhile(tmp_path: Path) -> None:
    config = write_config(tmp_path, '[worker]\nservices = ["pool"]\n', app=APP)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    argv = [sys.executable, "-m", "cordata", "call", "echo", "--json", "3", "--config", str(config)]
    path = tmp_path / "run" / "pool"
    with managed(config, "worker", "0") as worker:
        worker.until_ready()
        path.rename(path.with_name("away"))  # it comes when its directory does
        popen = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            cwd=ROOT,
        )
        with watched(popen) as process:
            assert process.stderr is not None
            assert "waiting up to 5 s" in process.stderr.readline()
            path.with_name("away").rename(path)
            output, _ = process.communicate(timeout=60.0)
        assert worker.stop()[0] == 0
    assert (process.returncode, output) == (0, "3\n")


def test_call_fails_at_once_when_there_is_not_even_a_state_directory(tmp_path: Path) -> None:
    result = cordata("call", "sum", "--state-dir", str(tmp_path / "no such"))
    assert (result.returncode, result.stdout) == (75, "")
    missing = re.escape(str(tmp_path / "no such"))
    told = rf"error: no worker answered in .*: there is no directory {missing}\nhint: start .*\n"
    assert re.fullmatch(told, result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "{"],
        ["--json", "1", "--file", "-"],
        ["--json", "[" * 100_000],
        ["--json", "9" * 40],
        ["--timeout", "nan"],
        ["--session", "\udcff"],
    ],
    ids=["no JSON", "two", "deep", "large number", "no time", "no UTF-8"],
)
def test_options_that_no_call_can_have_are_wrong_usage(
    arguments: list[str], tmp_path: Path
) -> None:
    result = cordata("call", "sum", *arguments, "--state-dir", str(tmp_path))
    assert (result.returncode, "bug" in result.stderr) == (2, False), result.stderr


@contextmanager
def calling(home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`cordata call`, which may take 30 s, when its command has begun."""
    words = (*words, "--timeout", "30", "--config", str(home / "cordata.toml"))
    argv = [sys.executable, "-m", "cordata", "call", *words]
    popen = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT)
    with watched(popen) as process:
        until(lambda: child(home)["command"] == words[0])
        yield process


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "stream"])
def test_interrupt_cancels_the_call_and_says_how_long_it_may_go_on(
    home: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "cancelled"
    payload = json.dumps([str(file), 30.0])
    with calling(home, "note_cancel", "--json", payload, *options) as process:
        pid = child(home)["pid"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60.0)
    assert process.returncode == 130
    told = r"cancelled: if note_cancel has begun, .* go on for up to (\d+) s, .* --hard .*\n"
    found = re.fullmatch(told, errors)
    assert found is not None and 10 <= int(found[1]) <= 30
    until(file.exists)
    assert until(lambda: child(home)["pid"]) == pid


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "stream"])
def test_interrupt_of_a_hard_call_has_its_process_killed(
    home: Path, options: tuple[str, ...]
) -> None:
    with calling(home, "hang", "--hard", *options) as process:
        pid = child(home)["pid"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60.0)
    assert process.returncode == 130
    assert re.fullmatch("cancelled: if hang has begun, .*its process killed.*\n", errors)
    until(lambda: child(home)["pid"] not in (0, pid))


#: A thread takes the signal, and the one that waits is not woken by it: as by one that comes right
#: before its system call.
ELSEWHERE = """
import os, signal, sys, threading
from cordata.pool import SyncClient

threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
with SyncClient(sys.argv[1]) as client:
    try:
        client.execute("wait", 30.0)
    except KeyboardInterrupt:
        os._exit(130)
"""


def test_interrupt_that_wakes_nobody_ends_a_sync_call(home: Path) -> None:
    argv = [sys.executable, "-c", ELSEWHERE, str(home / "run" / "pool")]
    with watched(subprocess.Popen(argv, env=ENVIRONMENT, cwd=ROOT)) as process:
        until(lambda: child(home)["command"] == "wait")
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == 130
    until(lambda: child(home)["command"] == "")
