"""POST /api/pool/{command}: in an application, and as the configuration switches it on."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.running import forked_server, free_address
from tests.waiting import until

from cordata import App, PoolError
from cordata.errors import DeadlineExceeded, PreferredWorkerBusy, QueueTimeout
from cordata.pool import Client, SyncClient
from cordata.pool.route import PREFIX, PoolRoute
from cordata.testing import Harness, open_app

POOLED = "tests.integration.pool.worker.pooled:app"
COMMANDS = ("echo", "fail", "refuse", "pages", "broken_pages", "sleep", "add", "shared")


@asynccontextmanager
async def shop(*served: str) -> AsyncIterator[Harness]:
    app = App("shop")
    for name in COMMANDS:
        app.command(name, at=f"tests.contract.pool.commands:{name}")
    app.mount(PREFIX, PoolRoute(served or ("*",)))
    async with open_app(app) as harness:
        yield harness


LINES = {"accept": "application/x-ndjson"}


async def test_call_answers_with_the_result_as_json() -> None:
    async with shop() as harness:
        answer = await harness.request("POST", f"{PREFIX}/echo", json={"a": [1]})
        assert (answer.status, answer.json()) == (200, {"a": [1]})
        assert answer.headers["content-type"] == "application/json"
        assert (await harness.request("POST", f"{PREFIX}/echo")).json() is None


async def test_session_and_timeout_come_in_headers() -> None:
    async with shop() as harness:
        session = (await harness.ctx.pool.sessions.create()).id
        heads = {"x-pool-session": session}
        answer = await harness.request("POST", f"{PREFIX}/add", headers=heads, json=7)
        assert answer.json()["rooms"] == [7]
        heads = {"x-pool-timeout": "0.1"}
        answer = await harness.request("POST", f"{PREFIX}/sleep", headers=heads, json=0.5)
        assert (answer.status, answer.json()["error"]) == (504, "deadline")
        for longest in ("inf", "1e300"):
            heads = {"x-pool-timeout": longest}
            answer = await harness.request("POST", f"{PREFIX}/echo", headers=heads, json=1)
            assert (answer.status, answer.json()) == (200, 1)


@pytest.mark.parametrize("more", [": worker 3 has no fonts", " (there are: 3)"])
@pytest.mark.parametrize("kind", [DeadlineExceeded, QueueTimeout, PreferredWorkerBusy])
async def test_who_is_outside_does_not_hear_why_nobody_took_the_call(
    kind: type[PoolError], more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: Any, **__: Any) -> None:
        raise kind(f"nobody took it{more}")

    async with shop() as harness:
        monkeypatch.setattr(harness.ctx.pool, "execute", late)
        answer = await harness.request("POST", f"{PREFIX}/echo")
        assert (answer.json()["error"], answer.json()["message"]) == (kind.code, "nobody took it")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "soon"])
async def test_timeout_that_is_none_is_refused(given: str) -> None:
    async with shop() as harness:
        heads = {"x-pool-timeout": given}
        answer = await harness.request("POST", f"{PREFIX}/echo", headers=heads)
        assert (answer.status, answer.json()["error"]) == (400, "timeout")


async def test_only_listed_commands_are_served() -> None:
    async with shop("pages", "ech*") as harness:
        for path, status in (("echo", 200), ("pages", 200), ("add", 404), ("", 404), ("x/y", 404)):
            answer = await harness.request("POST", f"{PREFIX}/{path}", json=1)
            assert answer.status == status, path
    async with shop("nothing") as harness:  # listed, and nobody has it
        answer = await harness.request("POST", f"{PREFIX}/nothing")
        assert (answer.status, answer.json()["error"]) == (404, "unknown_command")


async def test_other_methods_are_refused() -> None:
    async with shop() as harness:
        answer = await harness.request("GET", f"{PREFIX}/echo")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 100_000, b"9" * 40, b"18446744073709551616", b"1e999", b'"\xff"', b'"\\ud800"'],
)
async def test_body_that_no_command_can_be_given_is_refused(body: bytes) -> None:
    async with shop() as harness:
        for heads in ({}, LINES):
            answer = await harness.request("POST", f"{PREFIX}/echo", headers=heads, body=body)
            assert (answer.status, answer.json()["error"]) == (400, "json")


async def test_failures_tell_their_type_and_nothing_from_inside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with shop() as harness:
        answer = await harness.request("POST", f"{PREFIX}/fail", json="secret")
        assert answer.status == 500
        assert answer.json()["error"] == "failed"
        assert answer.json()["type"] == "tests.contract.pool.commands.NoRoom"
        assert "secret" not in answer.text
        assert "failed with tests.contract.pool.commands.NoRoom at commands.py:" in caplog.text
        assert "secret" not in caplog.text
        answer = await harness.request("POST", f"{PREFIX}/refuse")
        assert (answer.status, answer.json()["message"]) == (422, "never")
        harness.pool_crashes("echo")
        answer = await harness.request("POST", f"{PREFIX}/echo")
        assert (answer.status, answer.json()["error"]) == (502, "crashed")
        heads = {"x-pool-session": "none"}
        answer = await harness.request("POST", f"{PREFIX}/echo", headers=heads)
        assert (answer.status, answer.json()["error"]) == (404, "no_session")


async def test_stream_is_a_line_for_each_part() -> None:
    async with shop() as harness:
        answer = await harness.request("POST", f"{PREFIX}/pages", headers=LINES, json=3)
        assert (answer.status, answer.body) == (200, b"0\n1\n2\n")
        assert answer.headers["content-type"] == "application/x-ndjson"
        answer = await harness.request("POST", f"{PREFIX}/pages", headers=LINES, json=0)
        assert (answer.status, answer.body) == (200, b"")


async def test_stream_that_fails_says_so_where_it_can() -> None:
    async with shop() as harness:
        answer = await harness.request("POST", f"{PREFIX}/broken_pages", headers=LINES, json=2)
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert lines[:2] == [0, 1]
        assert lines[2]["error"] == "failed"
        answer = await harness.request("POST", f"{PREFIX}/broken_pages", headers=LINES, json=0)
        assert answer.status == 500


def scope_of(path: str, pool: object, **heads: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": f"{PREFIX}/{path}",
        "root_path": PREFIX,
        "headers": [(name.replace("_", "-").encode(), v.encode()) for name, v in heads.items()],
        "state": {"cordata": SimpleNamespace(pool=pool)},
    }


async def asked(scope: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
    """What the route sends; `messages` come before silence."""
    coming, sent = [*messages], []

    async def receive() -> Any:
        return coming.pop(0) if coming else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(60.0):
        await PoolRoute(("*",))(scope, receive, send)
    return sent


def body(data: bytes) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": False}


async def test_call_is_cancelled_when_its_client_leaves() -> None:
    async with shop() as harness:
        scope = scope_of("sleep", harness.ctx.pool)
        sent = await asked(scope, body(b"2"), {"type": "http.disconnect"})
        assert (sent[0]["status"], b"gone" in sent[1]["body"]) == (499, True)


async def test_pool_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    async with Client(tmp_path / "nobody") as client:
        sent = await asked(scope_of("echo", client, x_pool_timeout="0.1"), body(b"1"))
        assert sent[0]["status"] == 503
        assert (b"retry-after", b"1") in sent[0]["headers"]
        assert b"unavailable" in sent[1]["body"]
        assert b"nobody" not in sent[1]["body"], "the path is not for those outside"


def test_configuration_switches_it_on(tmp_path: Path) -> None:
    address = free_address()
    config = write_config(tmp_path, '[pool]\nhttp = ["echo"]\n', app=POOLED)
    with forked_server(
        None, "--config", str(config), "--listen", address, app=None, workers=1
    ) as running:
        running.ready()
        url = f"http://{address}{PREFIX}"
        with urlopen(Request(f"{url}/echo", data=b"[1]", method="POST"), timeout=20.0) as answer:
            assert json.load(answer) == [1]
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(f"{url}/about", data=b"1", method="POST"), timeout=20.0)
        assert caught.value.code == 404
        caught.value.close()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_call_and_stream_end_when_their_client_leaves(tmp_path: Path) -> None:
    """Also those that say nothing meanwhile, and those that wait: these never begin."""
    address = free_address()
    # At this level the log has a line of each.
    settings = '[pool]\nhttp = ["*"]\n[log]\nlevel = "debug"\n'
    config = write_config(tmp_path, settings, app=POOLED)
    with forked_server(
        None, "--config", str(config), "--listen", address, app=None, workers=1
    ) as running:
        running.ready()
        file = tmp_path / "ran"
        wait = posting(address, "wait", 600.0, "application/json")  # it looks if it is cancelled
        until(lambda: commands(tmp_path) == {"wait"})
        for number, accept in enumerate(("application/json", "application/x-ndjson")):
            posting(address, "note", [str(file), number, 0.0], accept).close()
        until(lambda: running.log.count("failed: 499") == 2)
        wait.close()
        until(lambda: not commands(tmp_path))
        sock = posting(address, "wait", 30.0, "application/x-ndjson")
        until(lambda: commands(tmp_path) == {"wait"})
        sock.close()
        until(lambda: not commands(tmp_path))
        with SyncClient(tmp_path / "run" / "pool") as pool:
            assert pool.execute("echo", 1) == 1
        assert not file.exists()
        assert "ERROR" not in running.log
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def posting(address: str, command: str, payload: object, accept: str) -> socket.socket:
    """A request, of which the answer is not read."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    body = json.dumps(payload)
    head = f"POST {PREFIX}/{command} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n"
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return sock


def commands(state: Path) -> set[str]:
    """What the children run."""
    with SyncClient(state / "run" / "pool") as pool:
        workers = pool.status()["workers"]
    return {child["command"] for one in workers for child in one["children"]} - {""}


def test_prefix_is_not_served_unless_commands_are_listed(tmp_path: Path) -> None:
    address = free_address()
    config = write_config(tmp_path, app=POOLED)
    with forked_server(
        None, "--config", str(config), "--listen", address, app=None, workers=1
    ) as running:
        running.ready()
        request = Request(f"http://{address}{PREFIX}/echo", data=b"1", method="POST")
        with urlopen(request, timeout=20.0) as answer:
            assert answer.read() != b"1\n"  # the application has it, which answers whatever comes


def test_application_that_serves_the_prefix_itself_is_told(tmp_path: Path) -> None:
    config = write_config(
        tmp_path, '[pool]\nhttp = ["*"]\n', app="tests.integration.pool.routed:app"
    )
    assert cordata("migrate", "--config", str(config)).returncode == 0
    address = free_address()
    with forked_server(
        None, "--config", str(config), "--listen", address, app=None, workers=1
    ) as running:
        running.until_logged("serves /api/pool itself")
