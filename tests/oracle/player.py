"""Plays a chapter on the hub and writes down what it answers, ids told by their order."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from click.testing import CliRunner
from tests.oracle.script import CLIENTS, HOTELS, NAMESPACE, SOURCES, Chapter, Step

from alpinehub.accounts import add_account
from alpinehub.app import app
from alpinehub.cli import alpinehub
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.sources import add_source
from cordata.testing import Harness, Response, open_app

#: That of every test (cordata.testing), so that commands open what the harness seals.
MASTER_KEY = bytes(range(32)).hex().encode()
PASSWORD = "a password of the oracle"
#: Headers of an answer that mean something to whoever gets it.
_HEADERS = ("content-type", "location", "retry-after", "www-authenticate", "allow")
#: What takes its time by itself, by the name of its function.
_PERIODIC = ("fold_counts", "merge_customers", "check_clients")
_DAILY = ("retain",)
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_REFERENCE = re.compile(r"&#x([0-9A-F]{2,6});")
#: The number of a row says nothing, and a store leaves some out when a unit runs again.
_NUMBER = re.compile(r'"(id|inbox|customer_id)": \d+')
_UNIQUE = re.compile(r'<HotelReservation [^>]*>\s*<UniqueID Type="(\d+)" ID="([^"]+)"')
_SHOWN, _GUESTS = 12, 6


def secret_of(hotel: str, name: str) -> str:
    """The secret of a source."""
    return f"oracle-{hotel}-{name}-0123456789".lower()


class Player:
    """One chapter on one store. `records` grows by one text a step, and those of the end."""

    def __init__(self, chapter: Chapter, harness: Harness, config: Path) -> None:
        self.records: list[str] = []
        self._chapter = chapter
        self._harness = harness
        self._config = config
        self._ids: dict[str, str] = {}
        #: What each client got at its last poll: (UniqueID type, ID).
        self._given: dict[str, list[tuple[str, str]]] = {}

    async def play(self, steps: Iterator[Step]) -> list[str]:
        """All of it; what was written down."""
        for at, step in enumerate(steps):
            self._harness.advance(seconds=1)
            answer = await self._do(step)
            head = " ".join(str(step[name]) for name in ("do", "client", "version") if name in step)
            self._write(f"{at} {head}", answer)
            # Ids that are made at one moment have no order, so no two events wait.
            await self._harness.drain()
        await self._look()
        return self.records

    def _write(self, what: str, said: str) -> None:
        text = _NUMBER.sub(r'"\1": ...', f"{what}\n{said}")
        self.records.append(_ID.sub(self._named, text))

    def _named(self, match: re.Match[str]) -> str:
        return self._ids.setdefault(match[0], f"[id {len(self._ids) + 1}]")

    async def _do(self, step: Step) -> str:
        match step["do"]:
            case "generic":
                return _told(await self._generic(step))
            case "lenient":
                return _told(await self._lenient(step))
            case "call":
                return _told(await self._call(step, step["action"], step["document"]))
            case "poll":
                return _told(await self._poll(step))
            case "acknowledge":
                return _told(await self._acknowledge(step))
            case "later":
                self._harness.advance(minutes=step["minutes"])
                await self._harness.drain()
                for name in _PERIODIC:
                    await self._harness.run_periodic(name)
                return ""
            case _:
                return await self._next_day(date.fromisoformat(step["day"]))

    async def _generic(self, step: Step) -> Response:
        hotel = step["source"] if step["source"] in ("ROSE", "SUN") else "ROSE"
        secret = step.get("secret") or secret_of(hotel, "booking")
        return await self._harness.request(
            "POST", "/api/webhook/generic", json=step["json"], headers={"x-webhook-secret": secret}
        )

    async def _lenient(self, step: Step) -> Response:
        kind, hotel, fields = step["kind"], step["hotel"], step["fields"]
        secret = secret_of(hotel, step["name"])
        target = f"/api/webhook/{kind}/{hotel}"
        if kind == "form":
            form = {"content-type": "application/x-www-form-urlencoded"}
            body = urlencode(fields).encode()
            return await self._harness.request(
                "POST", f"{target}/{secret}", headers=form, body=body
            )
        if kind == "google":
            return await self._harness.request("POST", target, json=fields | {"google_key": secret})
        return await self._harness.request("POST", f"{target}/{secret}", json=fields)

    async def _call(self, step: Step, action: str, document: str | None) -> Response:
        boundary = "oracle-boundary"
        parts = {"action": action} | ({} if document is None else {"request": document})
        body = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in parts.items()
        )
        login = b64encode(f"{step['client']}:{PASSWORD}".encode()).decode()
        headers = {
            "authorization": f"Basic {login}",
            "content-type": f"multipart/form-data; boundary={boundary}",
            "x-alpinebits-clientprotocolversion": step["version"],
        }
        return await self._harness.request(
            "POST", "/api/alpinebits", headers=headers, body=f"{body}--{boundary}--\r\n".encode()
        )

    async def _poll(self, step: Step) -> Response:
        start = f'<SelectionCriteria Start="{step["start"]}"/>' if "start" in step else ""
        document = (
            f'<OTA_ReadRQ xmlns="{NAMESPACE}" Version="1.001"><ReadRequests>'
            f'<HotelReadRequest HotelCode="{step["hotel"]}">{start}</HotelReadRequest>'
            "</ReadRequests></OTA_ReadRQ>"
        )
        answer = await self._call(step, "OTA_Read:GuestRequests", document)
        self._given[step["client"]] = _UNIQUE.findall(answer.text)
        return answer

    async def _acknowledge(self, step: Step) -> Response:
        given = self._given.get(step["client"], [])
        taken, refused = given, []
        match step["part"]:
            case "half":
                taken = given[: len(given) // 2]
            case "refuse one":
                taken, refused = given[1:], given[:1]
            case "unknown":
                taken = [*given, ("14", "0" * 31 + "f")]
        warnings = "".join(
            f'<Warning Type="3" Code="450" RecordID="{id_}">no room</Warning>' for _, id_ in refused
        )
        known = "".join(
            f'<HotelReservation><UniqueID Type="{kind}" ID="{id_}"/></HotelReservation>'
            for kind, id_ in taken
        )
        inside = f"<Success/>{f'<Warnings>{warnings}</Warnings>' if warnings else ''}"
        if known:
            inside += (
                "<NotifDetails><HotelNotifReport><HotelReservations>"
                f"{known}</HotelReservations></HotelNotifReport></NotifDetails>"
            )
        root = f'<OTA_NotifReportRQ xmlns="{NAMESPACE}" Version="1.000">'
        document = f"{root}{inside}</OTA_NotifReportRQ>"
        return await self._call(step, "OTA_NotifReport:GuestRequests", document)

    async def _next_day(self, day: date) -> str:
        at = datetime.combine(day, time(9), UTC)
        if at > self._harness.now:
            self._harness.move_to(at)
        await self._harness.drain()
        for name in (*_PERIODIC, *_DAILY):
            await self._harness.run_periodic(name)
        ran = [
            (await self._harness.run_job(job)).ran for job in ("daily-report", "portfolio-report")
        ]
        return repr(ran)

    async def _look(self) -> None:
        """What a person reads of all this."""
        await self._harness.drain(within=timedelta(hours=1), raising=False)
        for mail in await self._harness.mails():
            self._write("mail", f"{mail.to} {mail.subject}\n{mail.text}\n{mail.html}")
        types: dict[str, int] = {}
        for event in await self._harness.outbox():
            types[event.type] = types.get(event.type, 0) + 1
        self._write("events", json.dumps(types, sort_keys=True))
        self._write("dead letters", str(len(await self._harness.dead_letters())))
        for code, *_ in HOTELS:
            shown = ("--hotel", code, "--json", "--limit", "1000")
            words = ("inbox", "list", "--state", "all", *shown)
            items = json.loads(await run_command(self._config, *words))["items"]
            self._write_command(words, json.dumps(items, indent=2, ensure_ascii=False) + "\n")
            listed = await self._command("requests", "list", *shown)
            for item in json.loads(listed)["items"][:_SHOWN]:
                await self._command("requests", "show", item["id"], "--json")
            for guest in range(_GUESTS):
                address = f"guest{guest}@example.com"
                await self._command("customer", "export", "--email", address, "--hotel", code)
            for what in ("freerooms", "rates", "inventory"):
                await self._command("hotel", "data", code, what)

    async def _command(self, *words: str) -> str:
        said = await run_command(self._config, *words)
        self._write_command(words, said)
        return said

    def _write_command(self, words: Sequence[str], said: str) -> None:
        self._write(f"alpinehub {' '.join(words)}", said)


async def run_command(config: Path, *words: str) -> str:
    """What a command of `alpinehub` prints; its error where it fails."""

    def invoke() -> str:
        runner = CliRunner()
        done = runner.invoke(alpinehub, [*words, "--config", str(config)])
        said = done.output.removesuffix("nothing found\n")  # below the heads of an empty list
        return said if done.exception is None else f"{said}{done.exception!r}"

    return await asyncio.to_thread(invoke)


def _told(answer: Response) -> str:
    headers = [f"{name}: {answer.headers[name]}" for name in _HEADERS if name in answer.headers]
    # One libxml2 writes a letter of an attribute as it is, another one as a reference.
    text = _REFERENCE.sub(lambda match: chr(int(match[1], 16)), answer.text)
    return "\n".join([str(answer.status), *headers, text])


async def play(number: int, directory: Path, *, url: str = "sqlite:") -> list[str]:
    """What became of a chapter, on the store at `url`, in a directory that is empty but for it."""
    chapter = Chapter(number)
    credentials = directory / "credentials"
    credentials.mkdir(mode=0o700)
    (credentials / "master-key").write_bytes(MASTER_KEY)
    (credentials / "master-key").chmod(0o600)
    config = directory / "cordata.toml"
    config.write_text(
        f'[paths]\nstate = "{directory}"\nruntime = "{directory / "run"}"\n'
        f'credentials = "{credentials}"\n[store]\nurl = "{url}"\n'
    )
    begins = datetime.combine(chapter.begins, time(9), UTC)
    settings: dict[str, Any] = {
        "store": {"url": url},
        "alpinehub": {"portfolio_to": ["all@example.com"]},
    }
    async with open_app(app, now=begins, config=settings, directory=directory) as harness:
        await _set_up(harness)
        return await Player(chapter, harness, config).play(chapter.steps())


async def _set_up(harness: Harness) -> None:
    """Hotels, logins and sources, made at the chapter's time: reports begin with the hotel."""
    store = harness.ctx.store
    for code, name, zone, region, language in HOTELS:
        hotel = NewHotel(
            code=code,
            name=name,
            time_zone=zone,
            region=region,
            language=language,
            report_email=f"{code.lower()}@example.com",
        )
        await add_hotel(store, hotel)
    for login, hotels, _ in CLIENTS:
        await add_account(store, login, PASSWORD, hotels)
    for code, name, kind in SOURCES:
        await add_source(harness.ctx, code, kind, name, secret_of(code, name))
