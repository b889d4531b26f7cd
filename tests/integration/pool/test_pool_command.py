"""`cordata pool status|sessions|drain|recycle` against a real manager."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.integration.cli.command import cordata, python, write_config
from tests.integration.pool.managing import ENVIRONMENT, Manager, managed

from cordata.core.pool.codec import encode
from cordata.core.pool.message import CallFrame, Chunk, End, ErrorFrame, Reply, Result, SessionOp
from cordata.core.pool.order import ChildEvent, Recycle, Run


def ask(manager: Manager, *arguments: str) -> Any:
    result = cordata("pool", *arguments, "--json", "--config", str(manager.config))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_status_shows_who_does_what(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker(), manager.child() as child:
        with manager.client() as client:
            client.send(CallFrame(1, "echo"))
            child.expect(Run)
            result = cordata("pool", "status", "--config", str(manager.config))
            assert result.returncode == 0, result.stderr
            assert "0       default  busy" in result.stdout
            assert "echo" in result.stdout
            (worker,) = ask(manager, "status")["workers"]
            assert worker["children"][0]["call"]["command"] == "echo"


def test_status_shows_each_pool_its_commands(tmp_path: Path) -> None:
    """Those that are called there, of all that the application has and each worker knows."""
    settings = '[pool.slow]\nworkers = ["3"]\ncommands = ["rows"]\n'
    names = ("echo", "pack", "rows")
    with managed(tmp_path, settings) as manager:
        with manager.worker(cmds=names), manager.worker("3", cmds=names):
            result = cordata("pool", "status", "--config", str(manager.config))
    assert result.returncode == 0, result.stderr
    found = [line for line in result.stdout.splitlines() if line.startswith("commands")]
    assert found == ["commands   default: echo, pack", "commands   slow: rows"]


def test_status_says_why_a_child_does_not_start(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker() as worker:
        told = cordata("pool", "status", "--config", str(manager.config)).stdout
        assert "no start" not in told
        for event in (
            ChildEvent("started", 1, 1),
            ChildEvent("exited", 1, 1, m="OSError: \x1b[2J"),
        ):
            worker.send(event)
        why = manager.until(lambda told: told["workers"][0]["start_error"], "it is told")
        assert why == "OSError: \x1b[2J"
        result = cordata("pool", "status", "--config", str(manager.config))
        assert "\nno start   child of worker 0: OSError: \\x1b[2J\n" in result.stdout


def test_sessions_are_listed_without_what_they_hold(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        for id in ("a", "b"):
            secret = Raw(msgspec.msgpack.encode("secret"))
            client.send(SessionOp(1, "create", id, set={"name": secret}))
            client.expect(Reply)
        found = ask(manager, "sessions", "--limit", "1")
        assert [item["id"] for item in found["items"]] == ["a"]
        result = cordata("pool", "sessions", "--after", "a", "--config", str(manager.config))
        assert "b" in result.stdout and "secret" not in result.stdout


def test_drain_and_recycle_reach_the_worker(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.worker() as worker:
        ask(manager, "drain", "0")
        told = ask(manager, "status")
        assert told["workers"][0]["draining"]
        pool = told["pools"]["default"]
        assert (pool["ready"], pool["drained"]) == (0, len(told["workers"][0]["children"]))
        ask(manager, "drain", "0", "--undo")
        assert not ask(manager, "status")["workers"][0]["draining"]
        ask(manager, "recycle", "0")
        worker.expect(Recycle)
        result = cordata("pool", "recycle", "7", "--config", str(manager.config))
        assert result.returncode == 1
        assert "no worker '7'" in result.stderr


def test_command_says_try_again_when_nobody_answers(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.end()
        manager.socket.close()
        result = cordata("pool", "status", "--config", str(manager.config))
        assert result.returncode == 75
        assert "nobody answered" in result.stderr


def test_command_says_at_once_that_nobody_is_there(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        manager.end()
        manager.socket.close()
        for left in (True, False):  # refused, then not there
            result = cordata("pool", "drain", "0", "--json", "--config", str(manager.config))
            assert (result.returncode, result.stdout) == (75, "")
            assert ("nobody listens" if left else "no such file") in result.stderr
            assert "hint: start pool.socket" in result.stderr
            manager.path.unlink(missing_ok=True)


NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_command_of_another_user_is_told_at_once_whose_it_is() -> None:
    if subprocess.run([*NOBODY, sys.executable, "-c", "import click"], check=False).returncode:
        pytest.skip(f"others cannot read {sys.prefix}")
    # Not in pytest's directory: each new session, and some tests start one, shuts that to others.
    with tempfile.TemporaryDirectory() as place, managed(Path(place)) as manager:
        for directory in (manager.runtime, *manager.runtime.parents):
            if directory.is_relative_to("/tmp/") and directory != Path("/tmp"):
                directory.chmod(0o755)
        expected = {0o660: "is not for this user", 0o666: "may be a client, not operator"}
        for mode, text in expected.items():
            manager.path.chmod(mode)
            argv = [*NOBODY, sys.executable, "-m", "cordata", "pool", "status"]
            result = subprocess.run(
                [*argv, "--config", str(manager.config)],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
            )
            assert result.returncode == 1
            assert text in result.stderr


def test_pages_of_5000_sessions_are_all_of_them_once(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        names = [f"s{number:04}" for number in range(5000)]
        client.raw(b"".join(encode(SessionOp(1, "create", name)) for name in names))
        for _ in names:
            client.expect(Reply)
        found: list[str] = []
        after = ""
        while after is not None:
            page = ask(manager, "sessions", "--limit", "1000", "--after", after)
            found += [item["id"] for item in page["items"]]
            after = page["next"]
        assert found == names
        result = cordata("pool", "sessions", "--limit", "2", "--config", str(manager.config))
        assert result.stdout.count("\n") == 3
        assert "there is more: --after s0001" in result.stderr
        result = cordata("pool", "sessions", "--limit", "0", "--config", str(manager.config))
        assert result.returncode == 2


def test_role_without_its_socket_says_what_to_do(tmp_path: Path) -> None:
    config = tmp_path / "cordata.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\nruntime = "{tmp_path}"\n')
    result = cordata("pool", "--config", str(config))
    assert result.returncode == 78
    assert "no listening socket named pool" in result.stderr
    assert "pool.socket" in result.stderr


def numbers(found: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a status by its place in it."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from numbers(value, f"{name}.{key}" if name else key)
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield name, found


def test_every_count_of_the_status_moves_under_load(tmp_path: Path) -> None:
    """What is told is counted: nothing is announced that never changes."""
    settings = "[pool]\nmax_waiting = 1\nmax_frame_bytes = 4000\nmax_session_bytes = 2000\n"
    seen: set[str] = set()
    names: set[str] = set()

    with managed(tmp_path, settings) as manager, manager.child() as child:

        def look() -> None:
            found = list(numbers(manager.status()))
            names.update(name for name, _ in found)
            seen.update(name for name, value in found if value)

        with manager.client() as client:
            big = Raw(msgspec.msgpack.encode(b"x" * 5000))
            value = Raw(msgspec.msgpack.encode(b"x" * 500))
            for id, ttl in (("a", 60.0), ("b", 0.1), ("c", 60.0)):
                client.send(SessionOp(1, "create", id, ttl=ttl, set={"v": value}))
                client.expect(Reply)
            client.send(SessionOp(2, "delete", "c"))
            client.expect(Reply)
            too_much = Raw(msgspec.msgpack.encode(b"x" * 2500))
            client.send(SessionOp(3, "update", "a", set={"v": too_much}))
            assert client.expect(ErrorFrame).code == "quota"
            client.send(CallFrame(4, "echo", big))
            assert client.expect(ErrorFrame).code == "frame_too_large"
            client.send(CallFrame(5, "echo", credits=4))
            child.expect(Run)
            client.send(CallFrame(6, "echo"))
            client.send(CallFrame(7, "echo"))
            assert client.expect(ErrorFrame).code == "saturated"
            look()
            child.send(Chunk(5))
            child.send(End(5, x=1000))
            client.expect(Chunk)
            client.expect(End)
            child.expect(Run)
            child.send(Result(6, x=1000))
            client.expect(Result)
            manager.until(lambda found: found["sessions"]["expired"], "one expires")
            look()
            client.send(CallFrame(8, "echo", idempotent=True))
            child.expect(Run)
            child.close()
            look()
            client.raw(b"\x00\x00\x00\x01\xc1")
            client.expect(ErrorFrame)
            look()
    elsewhere = {
        "retries",  # with a second child: test_manager_calls
        "sent_ahead",  # commands whose time is known: test_ahead
        "had_back",
        *("loans.now", "loans.made", "loans.calls", "loans.failed"),  # real children: test_loans
        "pools.default.other",
        "pools.default.drained",  # test_drain_and_recycle_reach_the_worker
        "calls_per_s",  # right below
        "globals.keys",
        "globals.bytes",
        "journal.rewrites",
        "connections.blocked",
        "stops",  # by real workers: test_together
    }
    assert names - seen - elsewhere == set()


def test_rate_is_that_of_the_last_second(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        manager.until(lambda found: found["calls_per_s"] > 0, "the rate shows")
        manager.until(lambda found: found["calls_per_s"] == 0, "it falls again")


_FAILING = """
import sys
from cordata.cli.pool import run_role
from cordata.wiring import pool

def fail(config, path):
    raise LookupError("eva@example.com")

pool.run_pool = fail
run_role(sys.argv[1], debug=False)
"""


def test_failing_manager_tells_type_and_place_and_no_message(tmp_path: Path) -> None:
    done = python("-c", _FAILING, str(write_config(tmp_path)))
    assert done.returncode == 1
    assert "the process ends by LookupError" in done.stderr and "in fail" in done.stderr
    assert "eva" not in done.stderr


def test_manager_imports_neither_application_nor_store(tmp_path: Path) -> None:
    config = str(write_config(tmp_path))
    done = python("-X", "importtime", "-m", "cordata", "pool", "--config", config)
    assert done.returncode == 78 and "no listening socket named pool" in done.stderr
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "cordata.pool.server.hub" in imported
    assert not {"cordata.app", "cordata.store", "cordata.context", "cordata.http"} & imported
