"""AlpineBits polls: requests/s of the hub beside the FastAPI application with lxml, in rounds.

python -m tests.bench.poll [--store sqlite|postgres] [--rounds 5] [--seconds 4]

Each of 64 hotels has 20 guest requests that wait; its software reads them (OTA_Read, 2024-10) and
acknowledges none, so that each poll does the same work. Both answers are compared, but for ids and
times. With a first poll of its own for each hotel the hub marks 20 deliveries as sent and writes
their history; those polls are printed by themselves. Of one that repeats them it writes, every
30 s, that the software came. The peer writes one row for each poll.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from lxml import etree
from tests.bench.hub_load_drive import alpinebits
from tests.bench.hub_load_http import Connections
from tests.bench.hub_load_store import add_parties
from tests.bench.servers import POSTGRES, Server, fastapi_peer, hub
from tests.bench.webhook import CONNECTIONS, Measured, fresh, processor_s, scripted
from tests.servers.postgres import PostgresServer

from alpinehub.alpinebits_client.message import HotelName, read_requests

#: The ratio to reach.
WANTED = 5.0
#: As peer_poll.py has them, which needs packages that the hub has not.
HOTELS = 64
WAITING = 20
PROTOCOL = "2024-10"
PEER = "FastAPI + SQLAlchemy"
_ACTION = "OTA_Read:GuestRequests"
#: Until all workers know the new accounts.
_KNOWN_S = 10.0
_MESSAGE = (
    "Zimmer mit Balkon, bitte. Wir kommen mit dem Zug an und freuen uns auf ruhige Tage in den"
    " Bergen; ein Kinderbett und ein Parkplatz wären schön."
)


def booking(code: str, number: int) -> bytes:
    """A generic webhook of a guest of its own."""
    unique = f"{code.lower()}-{number}"
    said = {
        "hotel_code": code,
        "status": "request",
        "external_id": unique,
        "arrival": "2027-02-01",
        "departure": "2027-02-08",
        "adults": 2,
        "children": [5, 8],
        "first_name": "Eva",
        "last_name": "Muster",
        "email": f"eva.{unique}@example.com",
        "phone": f"+39333{int(code[-4:]):04}{number:03}",
        "language": "de",
        "message": _MESSAGE,
        "newsletter": True,
    }
    return json.dumps(said).encode()


def poll(code: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of the request of a hotel's software."""
    return alpinebits(f"{code.lower()}-0", PROTOCOL, _ACTION, read_requests(HotelName(code=code)))


def codes(hotels: int = HOTELS) -> list[str]:
    return [f"LOAD{number:04}" for number in range(hotels)]


async def fill(port: int, secrets: Mapping[str, str]) -> None:
    """Post what is to wait."""
    connections = Connections(port)
    await connections.open(16)

    async def send(code: str) -> None:
        headers = {"Content-Type": "application/json", "X-Webhook-Secret": secrets[code]}
        for number in range(WAITING):
            path, body = "/api/webhook/generic", booking(code, number)
            status, answer = await connections.post(path, headers, body)
            assert status == 200, (status, answer)

    async with asyncio.TaskGroup() as group:
        for code in secrets:
            group.create_task(send(code))
    await connections.close()


async def read(port: int, code: str) -> bytes:
    """The answer to one poll. Raises: AssertionError when it is not the list of all that waits."""
    connections = Connections(port)
    await connections.open(1)
    status, answer = await connections.post("/api/alpinebits", *poll(code))
    await connections.close()
    assert status == 200, (status, answer[:300])
    found = answer.count(b"</HotelReservation>")
    assert found == WAITING, f"{found} guest requests instead of {WAITING}: {answer[:300]!r}"
    return answer


def content(xml: bytes) -> list[str]:
    """The guest requests of an answer without ids and times, in one order."""
    found = []
    for one in etree.fromstring(xml).iterfind(".//{*}HotelReservation"):
        one.set("CreateDateTime", "")
        for unique_id in one.iterfind("{*}UniqueID"):
            unique_id.set("ID", "")
        one.tail = None
        found.append(etree.tostring(one, method="c14n").decode())
    return sorted(found)


async def secrets_of(config: Path, hotels: int) -> dict[str, str]:
    """Make the hub's hotels and accounts; the secret of each hotel's webhook."""
    from alpinehub.app import app
    from cordata import connect

    async with connect(app, config) as ctx:
        made = await add_parties(ctx, hotels)
    return {party.code: party.secrets["generic"] for party in made[:hotels]}


def request_file(folder: Path, answer: bytes) -> Path:
    """What poll.lua sends: a poll of each hotel."""
    parts = [str(len(answer) * 9 // 10).encode()]
    for code in codes():
        headers, body = poll(code)
        lines = ["POST /api/alpinebits HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        parts.append("\r\n".join((*lines, "", "")).encode() + body)
    path = folder / "polls"
    path.write_bytes(b"\0".join(parts))
    return path


def prepare(server: Server, folder: Path, hotels: int = HOTELS) -> bytes:
    """Store what is to wait; the answer to a poll of the first hotel."""
    port = int(server.url.rpartition(":")[2])
    if server.name == PEER:
        secrets = dict.fromkeys(codes(hotels), "demo")
    else:
        secrets = asyncio.run(secrets_of(folder / "hub" / "cordata.toml", hotels))
        asyncio.run(wait_known(port, codes(hotels)[-1]))
    asyncio.run(fill(port, secrets))
    return asyncio.run(read(port, codes(hotels)[0]))


async def read_all(port: int, hotels: Sequence[str]) -> None:
    """A poll of each of these hotels, at once."""
    async with asyncio.TaskGroup() as group:
        for code in hotels:
            group.create_task(read(port, code))


def measure(
    server: Server, postgres: PostgresServer | None, folder: Path, seconds: int
) -> tuple[Measured, float, float, bytes]:
    """A run, microseconds of processor a poll and a first poll, and an answer before it; one after
    it is checked.
    """
    answer = prepare(server, folder)
    port, half = int(server.url.rpartition(":")[2]), HOTELS // 2
    asyncio.run(read_all(port, codes()[:half]))  # now all workers have loaded what they need
    first_s = processor_s(server, postgres)
    asyncio.run(read_all(port, codes()[half:-1]))  # `prepare` polled the last one
    first_s = processor_s(server, postgres) - first_s
    path = str(request_file(folder, answer))
    scripted("poll.lua", server.url, path, seconds=2)
    used_s = processor_s(server, postgres)
    measured = scripted("poll.lua", server.url, path, seconds=seconds)
    used_s = processor_s(server, postgres) - used_s
    assert not measured.errors, measured
    asyncio.run(read(port, codes()[-1]))
    used_us = used_s / (measured.per_s * seconds) * 1e6
    return measured, used_us, first_s / (HOTELS - half - 1) * 1e6, answer


async def wait_known(port: int, code: str) -> None:
    """Wait until the workers know an account; another connection is another worker."""
    deadline, known = time.monotonic() + _KNOWN_S, 0
    while known < 12:
        assert time.monotonic() < deadline, "a worker does not know the accounts"
        connections = Connections(port)
        await connections.open(1)
        status, _ = await connections.post("/api/alpinebits", *poll(code))
        await connections.close()
        known = known + 1 if status == 200 else 0
        await asyncio.sleep(0.05)


def run(store: str, *, rounds: int, seconds: int) -> None:
    """Measure on one store and print what came out."""
    print(
        f"A poll with {WAITING} waiting, 4 workers, {store}, {HOTELS} hotels, {CONNECTIONS}"
        f" connections (load average {os.getloadavg()[0]:.1f})"
    )
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        postgres = None
        if store == "postgres":
            postgres = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        for number in range(rounds):
            answers = []
            for name in ("hub", "peer")[:: 1 - number % 2 * 2]:
                folder = scratch / f"{name}-{number}"
                folder.mkdir()
                with fresh(postgres) as url, ExitStack() as running:
                    if name == "hub":
                        server = running.enter_context(hub(folder, url))
                    else:
                        peer = fastapi_peer(folder, url, module="peer_poll")
                        server = running.enter_context(peer)
                    measured, used_us, first_us, answer = measure(server, postgres, folder, seconds)
                answers.append(content(answer))
                rates.setdefault(name, []).append(measured.per_s)
                costs.setdefault(name, []).append(used_us)
                print(
                    f"  round {number + 1} {server.name:22} {measured.per_s:7.0f}/s"
                    f"  p50 {measured.p50_ms:6.1f} ms  p99 {measured.p99_ms:6.1f} ms"
                    f"  processor {used_us:7.0f} us, of a first poll {first_us:7.0f} us",
                    flush=True,
                )
            assert answers[0] == answers[1], "the two answers differ"
    ratio = statistics.median(rates["hub"]) / statistics.median(rates["peer"])
    cost = statistics.median(costs["hub"]) / statistics.median(costs["peer"])
    print(f"  polls/s ratio {ratio:.1f}x (to reach: {WANTED:g}x); processor a poll {cost:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="default: each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    for store in [options.store] if options.store else ["sqlite", "postgres"]:
        run(store, rounds=options.rounds, seconds=options.seconds)


if __name__ == "__main__":
    main()
