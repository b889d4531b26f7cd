"""Polls and webhooks at fixed rates, whatever the server does (open loop).

A request begins on schedule, also when the ones before it are not answered yet, and its latency
counts from the moment it was due: a server that stalls is not asked less for it.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from zlib import crc32

from tests.bench.hub_load_http import Connections
from tests.bench.hub_load_store import PASSWORD, Party

from alpinehub.alpinebits_client.client import encode_multipart
from alpinehub.alpinebits_client.http import RequestFailed
from alpinehub.alpinebits_client.message import HotelName, notif_report, read_requests
from alpinehub.cli.sample import LANGUAGES, sample
from alpinehub.sources import path_of

PROTOCOLS = ("2020-10", "2022-10", "2024-10")
#: Of ten webhooks: what agencies' hotels have.
_KINDS = ("generic",) * 6 + ("wix",) * 2 + ("google", "form")
_FAILURES = (OSError, EOFError, TimeoutError, RequestFailed)
_UNIQUE_ID = re.compile(rb'<UniqueID Type="(14|15)" ID="([^"]+)"')
#: Kept open from the start, for polls and for webhooks.
_POLLING, _SENDING = 16, 64


@dataclass(slots=True)
class Taken:
    """What a run measured."""

    #: Seconds, by "poll", "ack" and "webhook".
    latencies: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: How long after its time a request began: what the generator itself adds.
    late: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    #: Guest requests fetched.
    fetched: int = 0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that so many of them do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


async def drive(
    port: int, parties: Sequence[Party], *, polls: float, webhooks: float, seconds: float, run: str
) -> Taken:
    """So many polls and webhooks a second. `run`: makes the numbers of its requests its own."""
    driver = _Driver(port, parties, run)
    await driver.open()
    gc.collect()
    gc.disable()  # a pause of ours would count as one of the server
    try:
        await asyncio.gather(
            driver.beat(polls, seconds, driver.poll), driver.beat(webhooks, seconds, driver.send)
        )
    finally:
        gc.enable()
        await driver.close()
    return driver.taken


class _Driver:
    def __init__(self, port: int, parties: Sequence[Party], run: str) -> None:
        self.taken = Taken()
        self._parties, self._run = parties, run
        self._users = [(party, name) for party in parties for name in party.users.values()]
        random.Random(1).shuffle(self._users)
        self._polling, self._sending = Connections(port), Connections(port)

    async def open(self) -> None:
        await self._polling.open(_POLLING)
        await self._sending.open(_SENDING)

    async def close(self) -> None:
        await self._polling.close()
        await self._sending.close()

    async def beat(
        self, rate: float, seconds: float, act: Callable[[int, float], Awaitable[None]]
    ) -> None:
        """Begin one each 1/rate seconds; return when all are through."""
        begin = perf_counter() + 0.05
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                due = begin + number / rate
                if (left := due - perf_counter()) > 0:
                    await asyncio.sleep(left)
                group.create_task(self._measured(act, number, due))

    async def _measured(
        self, act: Callable[[int, float], Awaitable[None]], number: int, due: float
    ) -> None:
        self.taken.late.append(perf_counter() - due)
        try:
            await act(number, due)
        except _FAILURES as error:
            self.taken.errors[f"{act.__name__}: {error!r}"] += 1

    async def poll(self, number: int, due: float) -> None:
        """Fetch what waits for the next user, and acknowledge it."""
        which = number % len(self._users)
        party, name = self._users[which]
        protocol = PROTOCOLS[which % len(PROTOCOLS)]
        document = read_requests(HotelName(code=party.code))
        answer = await self._ask(name, protocol, "OTA_Read:GuestRequests", document, "poll", due)
        if not (ids := _UNIQUE_ID.findall(answer)):
            return
        self.taken.fetched += len(ids)
        known = notif_report([(kind.decode(), one.decode()) for kind, one in ids], {})
        action = "OTA_NotifReport:GuestRequests"
        await self._ask(name, protocol, action, known, "ack", perf_counter())

    async def _ask(
        self, user: str, protocol: str, action: str, document: bytes, kind: str, due: float
    ) -> bytes:
        headers, body = alpinebits(user, protocol, action, document)
        status, answer = await self._polling.post("/api/alpinebits", headers, body)
        self.taken.latencies[kind].append(perf_counter() - due)
        if status != 200 or b"<Success/>" not in answer:
            self.taken.errors[f"{kind}: {status} {answer[:200]!r}"] += 1
        return answer

    async def send(self, number: int, due: float) -> None:
        """A submission to the next hotel; one generic one in twelve is that before it again."""
        number -= number % 20 == 15
        kind = _KINDS[number % len(_KINDS)]
        turn = number // len(self._parties)  # each hotel gets all kinds, one after the other
        party = self._parties[(number * 7 + turn) % len(self._parties)]
        unique = f"{self._run}-{number}"
        made = sample(
            kind,
            hotel=party.code,
            language=LANGUAGES[number % len(LANGUAGES)],
            number=unique,
            secret=party.secrets[kind],
            today=datetime.now(UTC).date(),
            odd=False,
        )
        # A form's limits count by address: each guest has one of their own, as a proxy tells it.
        address = ".".join(map(str, crc32(unique.encode()).to_bytes(4, "big")))
        headers = {"Content-Type": made.content_type, "X-Forwarded-For": address}
        if kind == "generic":
            headers["X-Webhook-Secret"] = party.secrets[kind]
        body = _of_guest(made.body, unique)
        path = path_of(kind, party.code, party.secrets[kind])
        status, answer = await self._sending.post(path, headers, body)
        self.taken.latencies["webhook"].append(perf_counter() - due)
        if status not in (200, 303):
            self.taken.errors[f"{kind}: {status} {answer[:200]!r}"] += 1


def _of_guest(body: bytes, unique: str) -> bytes:
    """A sample with a guest of its own: his address and his telephone number."""
    mailbox, number = f"{unique}@".encode(), b"%07d" % (crc32(unique.encode()) % 10_000_000)
    for written, his in (
        (b"eva.muster@", mailbox),
        (b"eva.muster%40", mailbox),
        (b"333 1234567", b"333 " + number),
        (b"333+1234567", b"333+" + number),
        (b"3331234567", b"333" + number),
    ):
        body = body.replace(written, his)
    return body


def alpinebits(
    user: str, protocol: str, action: str, document: bytes
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request of hotel software."""
    content_type, body = encode_multipart(action, document)
    token = b64encode(f"{user}:{PASSWORD}".encode()).decode()
    headers = {
        "Authorization": f"Basic {token}",
        "X-AlpineBits-ClientProtocolVersion": protocol,
        "X-AlpineBits-ClientID": "load",
        "Content-Type": content_type,
    }
    return headers, body
