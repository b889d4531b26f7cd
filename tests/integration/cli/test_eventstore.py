"""`cordata events` and `cordata subscriptions`, beside a running service and without one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.accounts import app
from tests.integration.cli.command import ROOT, cordata, write_config
from tests.integration.cli.mended import MENDED
from tests.integration.cli.service import running, told, until
from tests.servers.reaper import watched

from cordata import Row, Tx, connect

SECRET = "Eva Muster"


def prepared(directory: Path) -> Path:
    config = write_config(
        directory, '[worker]\nservices = ["engine"]\n', app="tests.integration.cli.accounts:app"
    )
    assert run(config, "migrate").returncode == 0
    return config


def run(config: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return cordata(*arguments, "--config", str(config), given=given)


def state_of(config: Path, name: str, state: str) -> Any:
    return until(
        config, "subscriptions", "status", name, true=lambda found: found["state"] == state
    )


def sums(config: Path) -> dict[str, int]:
    async def main() -> dict[str, int]:
        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all("ledger.balances")

        async with connect(app, config) as ctx:
            return {row["stream"]: row["total"] for row in await ctx.store.read(unit)}

    return asyncio.run(main())


def test_events_are_appended_and_read_when_nothing_runs(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    payload = json.dumps({"guest": SECRET, "amount": 5})
    done = told(config, "events", "append", "account-7", "deposited", payload, "--header", "by=me")
    assert (done["count"], done["version"]) == (1, 1)
    result = run(config, "events", "append", "account-7", "closed", "{}", "--expected", "1")
    assert result.stdout == "1 appended; account-7 is at version 2\n"
    result = run(config, "events", "append", "room-1", "cleaned", "-", given='{"by": "Max"}')
    assert result.returncode == 0, result

    found = told(config, "events", "read", "account-7")
    assert [(one["version"], one["type"]) for one in found["items"]] == [
        (1, "deposited"),
        (2, "closed"),
    ]
    assert found["items"][0]["payload"] == {"guest": SECRET, "amount": 5}
    assert found["items"][0]["headers"] == {"by": "me"} and found["next"] is None
    assert found["items"][0]["created_at"].endswith("+00:00")

    table = run(config, "events", "read")
    assert SECRET not in table.stdout
    assert [line.split()[:4] for line in table.stdout.splitlines()] == [
        ["POSITION", "STREAM", "VERSION", "TYPE"],
        ["1", "account-7", "1", "deposited"],
        ["2", "account-7", "2", "closed"],
        ["3", "room-1", "1", "cleaned"],
    ]
    assert SECRET in run(config, "events", "read", "--payload", "--newest").stdout
    assert "cleaned" in run(config, "events", "read", "--at", "3").stdout
    for position in (0, 4, 2**63 - 1):
        missing = run(config, "events", "read", "--at", str(position))
        assert missing.returncode == 1 and missing.stderr == "nothing found\n", missing


def test_append_says_what_is_wrong_when_it_is_refused(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    assert run(config, "events", "append", "account-7", "opened", "{}").returncode == 0
    for code, text, arguments in (
        (
            1,
            "is at version 1, not at 0 as expected",
            ("account-7", "opened", "{}", "--expected", "0"),
        ),
        (1, "not a valid stream name", ("account 7", "opened", "{}")),
        (2, "not JSON", ("account-7", "opened", "{")),
        (2, "a JSON object is needed", ("account-7", "opened", "[]")),
        (2, "is not NAME=VALUE", ("account-7", "opened", "{}", "--header", "by")),
        (2, "either TYPE and PAYLOAD, or --lines", ("account-7",)),
        (2, "either TYPE and PAYLOAD, or --lines", ("account-7", "opened")),
        (2, "either TYPE and PAYLOAD, or --lines", ("account-7", "opened", "--lines")),
    ):
        result = run(config, "events", "append", *arguments)
        assert (result.returncode, text in result.stderr) == (code, True), result
        assert "Traceback" not in result.stderr
    assert len(told(config, "events", "read")["items"]) == 1


def test_lines_are_appended_in_order_up_to_the_first_mistake(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    lines = [json.dumps({"type": "x", "payload": {"n": n}, "headers": {}}) for n in range(250)]
    text = "\n".join([*lines, "", ""])
    result = run(config, "events", "append", "account-7", "--lines", "--json", given=text)
    assert json.loads(result.stdout)["version"] == 250, result
    wrong = "\n".join([*lines[:120], "{nonsense"])
    result = run(
        config, "events", "append", "account-7", "--lines", "--expected", "250", given=wrong
    )
    assert result.returncode == 2 and "line 121: not JSON" in result.stderr
    found = told(config, "events", "read", "account-7", "--newest", "--limit", "1")
    assert found["items"][0]["version"] == 350
    latin = tmp_path / "latin"
    latin.write_bytes('{"type": "x"}\n{"type": "é"}\n'.encode("latin-1"))
    script = (
        f"exec {sys.executable} -m cordata events append room-7 --lines --config {config} <{latin}"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "line 2: not JSON" in done.stderr, done
    numbers: list[int] = []
    after = "0"
    while after:
        page = told(config, "events", "read", "account-7", "--after", after, "--limit", "99")
        numbers += [one["payload"]["n"] for one in page["items"]]
        after = str(page["next"] or "")
    assert numbers == [*range(250), *range(100)]


def test_header_is_added_to_each_line_when_it_is_an_option(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    lines = '{"type": "x"}\n{"type": "x", "headers": {"by": "line", "n": "1"}}\n'
    options = ("--lines", "--header", "by=option", "--header", "import=7")
    assert run(config, "events", "append", "account-7", *options, given=lines).returncode == 0
    headers = [one["headers"] for one in told(config, "events", "read")["items"]]
    assert headers == [
        {"by": "option", "import": "7"},
        {"by": "line", "import": "7", "n": "1"},
    ]
    wrong = run(config, "events", "append", "account-7", "--lines", "--header", "by", given=lines)
    assert wrong.returncode == 2 and "is not NAME=VALUE" in wrong.stderr


def test_events_are_narrowed_down(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    for stream, type_ in (("account-1", "a"), ("room-1", "b"), ("account-2", "b")):
        assert run(config, "events", "append", stream, type_, "{}").returncode == 0

    def positions(*arguments: str) -> list[int]:
        return [one["position"] for one in told(config, "events", "read", *arguments)["items"]]

    assert positions("--category", "account") == [1, 3]
    assert positions("--type", "b") == [2, 3]
    assert positions("--category", "account", "--type", "b", "--newest") == [3]
    assert positions("--since", "1h") == [1, 2, 3] and positions("--before", "1h") == []
    assert positions("--since", "1h", "--newest") == [3, 2, 1]
    assert positions("--after", "1", "--limit", "1") == [2]
    result = run(config, "events", "read", "--limit", "2")
    assert "there is more: --after 2" in result.stderr
    result = run(config, "events", "read", "account-1", "--category", "room")
    assert result.returncode == 2 and "not both" in result.stderr


def test_tail_prints_the_last_ones_and_each_new_one(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    for number in range(3):
        run(config, "events", "append", "account-1", f"old{number}", "{}")
    run(config, "events", "append", "room-1", "other", "{}")
    with tailing(config, "--category", "account", "--lines", "2", "--json") as process:
        assert [json.loads(line_of(process))["type"] for _ in range(2)] == ["old1", "old2"]
        run(config, "events", "append", "account-2", "new", "{}")
        assert json.loads(line_of(process))["stream"] == "account-2"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    with tailing(config, "account-1", "--from", "1", "--count", "2", "--payload") as process:
        assert line_of(process).endswith("account-1 2  old1  {}\n")
        assert line_of(process).endswith("account-1 3  old2  {}\n")
        assert process.wait(20) == 0


@contextmanager
def tailing(config: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "cordata", "events", "tail", *arguments]
    process = watched(
        subprocess.Popen(
            [*command, "--config", str(config)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_subscription_is_seen_reset_resumed_and_rebuilt(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    with running(config):
        for number in range(1, 5):
            amount = json.dumps({"amount": number})
            assert run(config, "events", "append", f"account-{number}", "x", amount).returncode == 0
        found = state_of(config, "bank.balances", "current")
        assert (found["behind"], found["workers"], found["blocked"]) == (0, 1, 0)
        assert len(found["partitions"]) == 4 and found["position"] == found["head"] == 4
        assert sum(sums(config).values()) == 10

        bad = json.dumps({"bad": True, "guest": SECRET})
        assert run(config, "events", "append", "account-1", "x", bad).returncode == 0
        state_of(config, "bank.balances", "blocked")
        expected = [("bank.balances", "blocked", 1, 0), ("bank.mailer", "current", 0, 1)]
        keys = ("name", "state", "blocked", "dead")
        until(
            *(config, "subscriptions", "list"),
            true=lambda found: (
                [tuple(one[key] for key in keys) for one in found["items"]] == expected
            ),
        )
        assert [
            one["name"]
            for one in told(config, "subscriptions", "list", "--state", "blocked")["items"]
        ] == ["bank.balances"]
        table = run(config, "subscriptions", "status", "bank.balances").stdout
        assert "ValueError: no such guest: Eva Muster\\x07" in table and "\x07" not in table

        dead = told(config, "subscriptions", "dead", "bank.mailer")["items"]
        assert [(one["position"], one["error"]) for one in dead] == [(5, "ValueError")]
        assert "payload" not in dead[0]
        whole = run(config, "subscriptions", "dead", "bank.mailer", "--payload").stdout
        assert SECRET in whole and "attempt" in whole.lower()

        result = run(config, "subscriptions", "reset", "bank.balances", "--wait", "--yes")
        assert result.returncode == 1 and "is blocked: ValueError" in result.stderr, result
        assert sum(sums(config).values()) == 10

        (tmp_path / "mended").touch()
        assert told(config, "subscriptions", "resume", "bank.balances") == {"count": 1}
        state_of(config, "bank.balances", "current")
        table = run(config, "subscriptions", "status", "bank.balances").stdout
        assert re.search(rf"worker-0@{re.escape(socket.gethostname())}\s", table), table
        assert run(config, "subscriptions", "resume", "bank.balances").returncode == 1
        assert sum(sums(config).values()) == 10

        result = run(config, "subscriptions", "reset", "bank.balances", "--wait", "--yes")
        assert result.returncode == 0, result
        assert "starts again after position 0" in result.stderr
        assert "is current at position 5" in result.stdout
        assert sum(sums(config).values()) == 10
        assert run(config, "subscriptions", "reset", "bank.mailer", "--yes").returncode == 0
        state_of(config, "bank.mailer", "current")
        assert told(config, "subscriptions", "dead", "bank.mailer")["items"] == []
        lines = run(
            config, "subscriptions", "reset", "bank.balances", "--wait", "--yes", "--json"
        ).stdout.splitlines()
        assert json.loads(lines[-1])["state"] == "current"
        result = run(config, "subscriptions", "drop", "bank.mailer", "--yes")
        assert result.returncode == 1 and "serves bank.mailer" in result.stderr
    assert state_of(config, "bank.balances", "unserved")["workers"] == 0
    assert run(config, "subscriptions", "drop", "bank.mailer", "--yes").returncode == 0
    assert len(told(config, "subscriptions", "list")["items"]) == 1
    assert_waiting_is_told(config)


def assert_waiting_is_told(config: Path) -> None:
    """Who waits for a subscription that nobody serves is told so, and Ctrl-C ends it."""
    words = ("reset", "bank.balances", "--wait", "--yes", "--config", str(config))
    waiting = watched(
        subprocess.Popen(
            [sys.executable, "-m", "cordata", "subscriptions", *words],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    killer = threading.Timer(30, waiting.kill)
    killer.start()
    assert waiting.stderr is not None
    with waiting:
        assert any("no worker serves bank.balances" in line for line in waiting.stderr)
        waiting.send_signal(signal.SIGINT)
        waiting.stderr.read()
    killer.cancel()
    assert waiting.returncode == 130


@pytest.mark.parametrize(
    "arguments",
    [
        ("reset", "bank.balances"),
        ("resume", "bank.balances", "--skip"),
        ("drop", "bank.balances"),
    ],
)
def test_nothing_is_lost_when_nobody_can_be_asked(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    config = prepared(tmp_path)
    result = run(config, "subscriptions", *arguments)
    assert result.returncode == 2 and "add --yes" in result.stderr


def test_unknown_subscription_is_exit_1(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    for arguments in (
        *(("status",), ("status", "--follow")),
        *(("reset", "--yes"), ("reset",), ("drop", "--yes"), ("resume",)),
    ):
        result = run(config, "subscriptions", arguments[0], "bank.nonsense", *arguments[1:])
        assert result.returncode == 1 and "no subscription 'bank.nonsense'" in result.stderr, result
    result = run(config, "subscriptions", "reset", "bank.balances", "--to", "never")
    assert result.returncode == 2 and "is not start, end or a position" in result.stderr


def test_reset_asks_with_what_it_does(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    asked = run(config, "subscriptions", "reset", "bank.balances").stderr
    assert "data that it wrote. Every event is handled again. Reset bank.balances?" in asked
    asked = run(config, "subscriptions", "reset", "bank.mailer", "--to", "7").stderr
    assert "no reset function" in asked and "after position 7 is handled again, the" in asked
    asked = run(config, "subscriptions", "reset", "bank.mailer", "--to", "end").stderr
    assert "are skipped" in asked


def test_test_mode_handles_every_event_that_is_there_and_tells_of_those_given_up(
    tmp_path: Path,
) -> None:
    config = prepared(tmp_path)
    lines = [json.dumps({"type": "x", "payload": {"amount": n}}) for n in range(100)]
    for number in range(5):
        arguments = ("events", "append", f"account-{number}", "--lines")
        assert run(config, *arguments, given="\n".join(lines)).returncode == 0
    server = ("server", "--workers", "2", "--test-mode", "--config", str(config))
    mended = str(tmp_path / "mended")
    result = cordata(*server, **{MENDED: mended})
    assert result.returncode == 0, result
    assert sums(config) == {f"account-{number}": 4950 for number in range(5)}
    told_ = re.findall(r"handled 0 messages, ([\d,]+) events? of the event store", result.stderr)
    # Two subscriptions of five hundred, whichever worker had a partition.
    counts = [int(count.replace(",", "")) for count in told_]
    assert len(counts) == 2 and sum(counts) == 1000, result.stderr
    bad = run(config, "events", "append", "account-1", "x", '{"bad": true, "amount": 1}')
    assert bad.returncode == 0
    result = cordata(*server, **{MENDED: mended})
    assert result.returncode == 1 and "given up by subscriptions" in result.stderr, result
    Path(mended).touch()
    # What is blocked stays so until an operator says otherwise, and nobody waits for it.
    assert cordata(*server, **{MENDED: mended}).returncode == 0
    assert told(config, "subscriptions", "resume", "bank.balances") == {"count": 1}
    assert cordata(*server, **{MENDED: mended}).returncode == 0
    assert sums(config)["account-1"] == 4951
