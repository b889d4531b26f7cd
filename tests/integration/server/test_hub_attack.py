"""Clients that mean to keep everybody else out: no worker is killed, good requests are answered.

A good request has an answer within 5 s: a promise to operators. An undisturbed one takes 5 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.server import guests
from tests.integration.server.attacker import PATIENCE_S, Attacker, head, statuses, whole
from tests.integration.server.hubs import FORM_SECRETS, Hub, hub

WORKERS = 2
#: Several times what is promised: the machine of a test may be busy with others.
GOOD_WITHIN_S = 30.0
HEALTH = b"GET /api/health HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with hub(tmp_path_factory.mktemp("hub"), workers=WORKERS) as running:
        yield running
        assert running.stop() == 0


def good_request(made: Hub, request: bytes) -> int:
    """Its status. In a thread: the attackers' event loop may take longer for a turn than the second
    within which a full worker expects a request.
    """
    host, _, port = made.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=GOOD_WITHIN_S) as sock:
        sock.sendall(request)
        answer = b"".join(iter(lambda: sock.recv(65_536), b""))
    [found] = statuses(answer)
    return found


@contextlib.asynccontextmanager
async def good_requests(made: Hub) -> AsyncIterator[None]:
    """Good requests all the while, each within its time; no worker is killed meanwhile."""
    stop = asyncio.Event()

    async def ask() -> None:
        number = 0
        while not stop.is_set() or number < 10:
            number += 1
            booking = whole("generic", guests.generic(number)[1])
            async with asyncio.timeout(GOOD_WITHIN_S):
                request = booking if number % 2 else HEALTH
                assert await asyncio.to_thread(good_request, made, request) == 200
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        try:
            yield
        finally:
            stop.set()
    assert "watchdog" not in made.log and "starts again" not in made.log


@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize(
    ("target", "expected"), [("nothing", {404}), ("stranger", {400, 401}), ("alpinebits", {400})]
)
async def test_good_requests_are_answered_while_chunks_of_one_byte_come(
    made: Hub, target: str, expected: set[int], count: int
) -> None:
    chunks = b"1\r\nx\r\n" * 10_922
    begun, more = head(target, Transfer_Encoding="chunked"), [chunks] * 320  # 21 MB
    attacker = Attacker(made)
    async with good_requests(made):
        sent = (attacker.status(begun, more=more) for _ in range(count))
        assert set(await asyncio.gather(*sent)) <= expected


async def read_slowly(attacker: Attacker, begun: asyncio.Event) -> None:
    """Ask without end and read nothing; come again when cut off."""
    asked = HEALTH.replace(b"Connection: close\r\n", b"") * 500
    while True:
        with contextlib.suppress(OSError):
            async with attacker.connection() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                while True:
                    await asyncio.get_running_loop().sock_sendall(sock, asked)
                    begun.set()
                    await asyncio.sleep(0)  # or it sends on as long as the hub reads
        await asyncio.sleep(0.05)


async def test_good_requests_are_answered_while_others_ask_and_do_not_read(
    tmp_path: Path,
) -> None:
    """Three times as many connections as the workers take: all of them wait all the while."""
    limit = 20
    more = f"[http]\nmax_connections = {limit}\n"
    with hub(tmp_path / "hub", workers=WORKERS, more=more) as made:
        attacker = Attacker(made)
        begun = [asyncio.Event() for _ in range(3 * WORKERS * limit)]
        tasks = [asyncio.ensure_future(read_slowly(attacker, one)) for one in begun]
        try:
            async with asyncio.timeout(PATIENCE_S):
                for one in begun[: WORKERS * limit]:
                    await one.wait()
            async with good_requests(made):
                await asyncio.sleep(3)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert made.stop() == 0


async def test_secrets_in_paths_are_never_logged(tmp_path: Path) -> None:
    """As they are, with a foreign character, misplaced; served, refused, or not even a request."""
    foreign = (".", ",", ")", "%22", "%0A", "\xff", " x", "\t", "/x")
    paths = []
    for kind in ("wix", "form"):
        secret, begin = FORM_SECRETS[kind], f"/api/webhook/{kind}/DEMO"
        spellings = [secret, *(secret + one for one in foreign), *(one + secret for one in foreign)]
        spellings += [secret.replace("-", one) for one in ("%2D", "%252D", "\u00ad")]
        paths += [f"{begin}/{one}" for one in spellings]
        paths += [f"{begin}%2F{secret}.", f"{begin}//{secret}.", f"/{begin}/{secret}."]
        paths += [f"http://hub{begin}/{secret},", f"/api/%77ebhook/{kind}/DEMO/{secret},"]
        paths += [f"/api/webhook{one}/{secret}." for one in (f"/{kind}", f"s/{kind}/DEMO", "")]
    with hub(tmp_path / "hub", workers=1, more="[http]\naccess_log = true\n") as made:
        attacker = Attacker(made)
        for path in paths:
            body = "Host: hub\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
            await attacker.send(f"POST {path} HTTP/1.1\r\n{body}".encode("latin-1"))
        made.running.until_logged(" (refused|served): ", len(paths))
        assert made.stop() == 0
        for part in ("demo-wix", "demo-form", "demo%", "demo\u00ad", "0123456789", "56789012"):
            assert [line for line in made.running.lines if part in line] == [], part
        cut = [line for line in made.running.lines if "/api/webhook/wix/DEMO/..." in line]
        assert len(cut) > 20
