"""A hostile network against the whole hub, on its port: a clear answer to all, nothing half stored,
memory and log within their bounds, and good requests answered meanwhile.
"""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from tests.integration.server import guests
from tests.integration.server.attacker import (
    MIB,
    TARGETS,
    Attacker,
    chunked,
    head,
    memory_mb,
    whole,
)
from tests.integration.server.guests import multipart
from tests.integration.server.hubs import FORM_SECRETS, OPEN, Hub, hub
from tests.waiting import until

from cordata.http.access_log import REFUSAL_LINES

WORKERS = 2
#: Of a worker, whatever comes: it has 45 MB at rest, a second after its start.
MAX_MB = 170
#: And in the end: what large bodies took is given back.
MAX_LEFT_MB = 85
_TABLES = (
    "inbox", "reservation", "reservation_version", "reservation_history", "customer", "delivery",
    "event", "message", "form", "hotel_document", "mail",
)  # fmt: skip
_READ = (
    '<OTA_ReadRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.001"><ReadRequests>'
    '<HotelReadRequest HotelCode="DEMO"/></ReadRequests></OTA_ReadRQ>'
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    # Whoever is told of errors is told at once.
    more = '[alert]\nto = ["operator@hub.test"]\ncount = 1\n'
    with hub(tmp_path_factory.mktemp("hub"), workers=WORKERS, more=more) as running:
        yield running
        check_end(running)


def check_end(made: Hub) -> None:
    """What all attacks together left in the log, and in the store."""
    until(lambda: made.number(OPEN) == 0, "the last event handled")
    left = [memory_mb(made.running.pid_of(name), "VmRSS") for name in ("worker@0", "worker@1")]
    print(f"\nMB in the end: {left}")
    assert max(left) < MAX_LEFT_MB
    assert made.stop() == 0
    refused = [line for line in made.running.lines if " refused: " in line]
    assert len(refused) < WORKERS * REFUSAL_LINES + 800  # of thousands; a second may bring one
    mails = made.rows("SELECT subject, text FROM mail")
    assert len(mails) <= 5, mails  # that large bodies were refused is an error of each worker
    told = made.log + str(mails)
    for secret in (*FORM_SECRETS.values(), "example.com", "Traceback", "Muster"):
        assert secret not in told, secret
    assert made.rows("PRAGMA integrity_check") == [("ok",)]


def tables(made: Hub) -> list[int]:
    return [made.number(f"SELECT count(*) FROM {table}") for table in _TABLES]


def read() -> bytes:
    """A good poll."""
    return whole("alpinebits", multipart("OTA_Read:GuestRequests", _READ))


def booking(number: int) -> bytes:
    """A good submission."""
    return whole("generic", guests.generic(number)[1])


def check_memory(made: Hub) -> None:
    found = {
        name: memory_mb(made.running.pid_of(name), "VmHWM") for name in ("worker@0", "worker@1")
    }
    print(f"\npeak MB: {found}")
    assert max(found.values()) < MAX_MB


@pytest.mark.parametrize("target", TARGETS)
async def test_body_of_100_mb_is_refused(made: Hub, target: str) -> None:
    attacker, before = Attacker(made), tables(made)
    early = {"stranger": 401, "nothing": 404}.get(target, 413)
    size = 100 * len(MIB)
    assert await attacker.status(head(target, Content_Length=size), more=[MIB] * 100) == 413
    assert await attacker.status(more=chunked(target, [MIB] * 100)) in (early, 413)
    packed = gzip.compress(bytes(size), 1)
    answer = await attacker.status(whole(target, packed, Content_Encoding="gzip"))
    assert answer == (413 if target == "alpinebits" else early if early != 413 else 415)
    assert tables(made) == before
    check_memory(made)


@pytest.mark.parametrize("target", TARGETS)
async def test_request_that_is_cut_off_leaves_nothing(made: Hub, target: str) -> None:
    attacker, before = Attacker(made), tables(made)
    body = {
        "alpinebits": multipart("OTA_Read:GuestRequests", _READ),
        "stranger": multipart("OTA_Read:GuestRequests", _READ),
        "generic": guests.generic(1)[1],
        "wix": guests.wix(1)[1],
        "google": guests.google(1)[1],
        "form": guests.form(1)[1],
        "nothing": b"x" * 100,
    }[target]
    request = head(target, Content_Length=len(body)) + body
    ends = random.Random(3).sample(range(1, len(request)), 30)
    await asyncio.gather(*(attacker.send(request[:end], cut=True) for end in ends))
    answers = await asyncio.gather(*(attacker.status(request[:end]) for end in ends))
    assert set(answers) <= {400, 401, 404}
    in_chunks = list(chunked(target, [body[:40], body[40:]]))
    for count in (1, 2, 3):
        assert await attacker.status(*in_chunks[:count]) in (400, 401, 404)
    assert tables(made) == before


async def test_rubbish_and_floods_of_headers_are_refused(made: Hub) -> None:
    attacker, before, chance = Attacker(made), tables(made), random.Random(5)
    begin = b"GET /api/health HTTP/1.1\r\nHost: hub\r\n"
    assert await attacker.many(100, lambda _: chance.randbytes(20_000)) == {400: 100}
    large = begin + b"X: " + b"y" * 40_000 + b"\r\n\r\n"
    assert await attacker.many(100, lambda _: large) == {431: 100}
    many = begin + b"X: y\r\n" * 5000 + b"\r\n"
    assert await attacker.many(100, lambda _: many) == {431: 100}
    pipelined = begin + b"\r\n"
    behind = await attacker.many(20, lambda _: pipelined * 200 + chance.randbytes(2000))
    assert behind == {200: 4000, 400: 20}
    assert tables(made) == before
    check_memory(made)


async def test_good_requests_are_answered_while_others_are_slow(made: Hub) -> None:
    """Each of these takes a connection and goes no further; together they would be 700 MB."""
    attacker = Attacker(made)
    slow = (
        (150, b"GET /api/health HTTP/1.1\r\nHost: hub\r\nX: y"),
        (150, head("generic", Content_Length=2000) + b"{"),
        (150, head("google", Content_Length=262_000) + b"x" * 250_000),
        (180, head("alpinebits", Content_Length=2_000_000) + b"x" * 1_900_000),
        (60, head("alpinebits", Content_Length=8_000_000) + b"x" * 5_000_000),
    )
    number = made.number("SELECT count(*) FROM reservation")
    async with AsyncExitStack() as held:
        for kind, (count, begun) in enumerate(slow):
            await held.enter_async_context(attacker.holding(count, begun))
            good = [booking(100 * kind + one) for one in range(10)] + [read()] * 10
            assert await attacker.many(20, good.__getitem__) == {200: 20}
        check_memory(made)
    assert made.number("SELECT count(*) FROM reservation") == number + 50


async def test_flood_is_answered_and_hardly_logged(made: Hub) -> None:
    """With a secret that is nearly right, and an address where none belongs: see `check_end`."""
    attacker, before = Attacker(made), len(made.running.lines)
    path = f"/api/webhook/wix/DEMO/{FORM_SECRETS['wix']}x".encode()
    asked = b"POST " + path + b"?email=eva@example.com HTTP/1.1\r\nHost: hub\r\n\r\n"
    assert await attacker.many(10, lambda _: asked * 300) == {401: 3000}
    assert len(made.running.lines) - before < WORKERS * REFUSAL_LINES + 800
