"""`alpinehub check`: nothing fails against the hub, and each mistake of a server is found."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.alpinebits_client.faulty import Said, faulty
from tests.integration.alpinebits_client.peers import PATH, Done, command, http, scripted
from tests.integration.cli.terminal import Terminal
from tests.integration.hub.material import BOOKING, PRICE, Hub, open_hub
from tests.integration.hub.served import served

from alpinehub.hotels import NewHotel, add_hotel

_AS_DEMO = ("--user", "demo", "--hotel", "DEMO", "--foreign-hotel", "ROSE", "--json")


async def prepare(hub: Hub) -> None:
    """Twelve requests of all kinds, and a hotel that the user may not read."""
    await add_hotel(hub.ctx.store, NewHotel(code="ROSE", name="Rosé"))
    for number in range(12):
        booked = {**BOOKING, "external_id": f"n-{number}"}
        if number % 3:
            booked |= {"status": "reservation", **PRICE}
        await hub.post(booked)
    cancelled = {"hotel_code": "DEMO", "status": "cancelled", "external_id": "n-1"}
    assert (await hub.post(cancelled)).status == 200


def failures(done: Done) -> set[str]:
    """The checks that failed."""
    return {one["check"] for one in done.json["checks"] if one["result"] == "failed"}


@pytest.mark.usefixtures("each_store")
async def test_nothing_fails_against_the_hub(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        await prepare(hub)
        done = await command("check", url, *_AS_DEMO, "--write", "--stress")
        told = done.json
        wrong = [one for one in told["checks"] if one["result"] != "passed"]
        assert wrong == [] and done.code == 0
        assert told["failed"] == 0 and told["passed"] >= 100
        ran = {one["version"] for one in told["checks"] if one["check"] == "guest.ack"}
        assert ran == {"2017-10", "2018-10", "2020-10", "2022-10", "2024-10"}


async def test_table_says_what_was_checked_and_nothing_is_changed(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        await prepare(hub)
        done = await command("check", url, "--user", "demo", "--hotel", "DEMO")
        assert done.code == 0 and re.search(
            r"\d+ passed, 0 failed, 0 warnings, \d+ skipped", done.out
        )
        assert re.search(r"guest.list +passed +2017-10 to 2024-10 +the list is valid", done.out)
        assert "only with --write" in done.out
        assert await hub.one("SELECT count(*) FROM delivery WHERE acked_at IS NOT NULL") == 0
        few = await command("check", url, *_AS_DEMO, "--only", "handshake", "--version", "2020-10")
        assert {one["version"] for one in few.json["checks"]} == {"2020-10", None}
        assert {one["check"].split(".")[0] for one in few.json["checks"]} == {"handshake"}


async def test_bar_grows_from_the_first_request_to_the_last(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        words = ("check", url, "--user", "demo", "--only", "handshake")
        terminal = Terminal(*words, program="alpinehub", ALPINEHUB_PASSWORD="demo")
        code, out = await asyncio.to_thread(terminal.ended)
    assert code == 0 and " 0 failed" in out
    shown = re.findall(r" (\d+) %  (\S+)", terminal.shown)
    assert shown[0] == ("0", "asking")
    shares = [int(share) for share, _ in shown]
    assert shares == sorted(shares) and shares[1] == 0 and shares[-1] > 90
    assert {"handshake.ping", "handshake.echo"} <= {what for _, what in shown}


def not_found(said: Said) -> None:
    if said.status == 400:
        said.status = 404


def error_page(said: Said) -> None:
    if said.status == 400:
        said.take(400, b"<html>Bad Request</html>", "text/html")


def no_challenge(said: Said) -> None:
    said.headers.pop("www-authenticate", None)


def client_id_wanted(said: Said) -> None:
    if "x-alpinebits-clientid" not in said.notes["request"]:
        said.take(400, b"ERROR:no client id")


def any_case(said: Said) -> None:
    said.body = said.body.replace(b"ota_read:guestrequests", b"OTA_Read:GuestRequests")


def get_answered(said: Said) -> None:
    if said.method == "GET":
        said.take(200, b"hello")


def no_files(said: Said) -> None:
    if b"filename=" in said.asked:
        said.take(400, b"ERROR:no request")


def gzip_not_taken(said: Said) -> None:
    if said.asked.startswith(b"\x1f\x8b"):
        said.take(500, b"ERROR:what is this?")


def dtd_taken(said: Said) -> None:
    said.body = re.sub(rb"<!DOCTYPE[^\]]*\]>", b"", said.body).replace(b"&e;", b"expanded")


def echo_trimmed(said: Said) -> None:
    said.body = re.sub(rb"(?s)(?<=<EchoData>)(.*)(?=</EchoData>)",
                       lambda found: b" ".join(found[1].split()), said.body)  # fmt: skip


def warning_of_type_3(said: Said) -> None:
    said.body = said.body.replace(
        b'Type="11" Status="ALPINEBITS_HAND', b'Type="3" Status="ALPINEBITS_HAND'
    )


def all_announced(said: Said) -> None:
    everything = (
        b'{"versions":[{"version":"1999-01"},{"version":"2018-10","actions":[{"action":"action_OTA_Read",'
        b'"supports":[]}]}]}'
    )
    said.body = re.sub(rb'(?s)(?<=HANDSHAKE">)(.*)(?=</Warning>)', everything, said.body)


def more_announced_than_known(said: Said) -> None:
    more = b'{"action":"action_OTA_HotelResNotif_Nothing"},{"action":"action_OTA_Read"'
    head, mark, rest = said.body.partition(b"<Warning ")
    said.body = head + mark + rest.replace(b'{"action":"action_OTA_Read"', more, 1)


def no_errors_of_its_own(said: Said) -> None:
    if b"<Errors>" in said.body:
        said.take(404, b"ERROR:unknown hotel")


def hotels_told_apart(said: Said) -> None:
    if b"ROSE" in said.asked:
        said.take(403, b"ERROR:not yours")


def invalid_list(said: Said) -> None:
    said.body = said.body.replace(b"<ReservationsList>", b"<Reservations>").replace(
        b"</ReservationsList>", b"</Reservations>"
    )


def start_ignored(said: Said) -> None:
    said.body = re.sub(rb"<SelectionCriteria[^>]*/>", b"", said.body)


def unknown_ids_refused(said: Said) -> None:
    if b"RecordID" in said.body:
        said.take(400, b"ERROR:no such id")


def wrong_types(said: Said) -> None:
    said.body = said.body.replace(b'<UniqueID Type="14"', b'<UniqueID Type="15"')


class DoneWhenRead:
    """Marks everything as done when it is read: what others get wrong most."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def __call__(self, said: Said) -> None:
        if said.action != "OTA_Read:GuestRequests" or b"SelectionCriteria" in said.asked:
            return

        def once(found: re.Match[bytes]) -> bytes:
            unique_id = re.search(rb' ID="(\w+)"', found[0])
            assert unique_id is not None
            if unique_id[1] in self.seen:
                return b""
            self.seen.add(unique_id[1])
            return found[0]

        said.body = re.sub(rb"(?s)<HotelReservation .*?</HotelReservation>", once, said.body)


class NeverTaken:
    """Answers each acknowledgement with Success, and forgets it."""

    def __call__(self, said: Said) -> None:
        said.body = re.sub(rb'(?<=UniqueID Type="14" ID=")\w{32}(?=")', b"x", said.body)
        said.body = re.sub(rb'(?<=UniqueID Type="15" ID=")\w{32}(?=")', b"x", said.body)
        said.body = re.sub(rb'(?<=RecordID=")\w{32}(?=")', b"x", said.body)


def nested_without_end(said: Said) -> None:
    """The JSON in the answer to a handshake that only one check sends."""
    if b'["x"]' in said.asked:
        said.body = re.sub(rb'(HANDSHAKE">)[^<]*', rb"\1" + b"[" * 100_000, said.body)


_ON_RESPONSE: list[tuple[Callable[[Said], None], set[str]]] = [
    (
        not_found,
        {
            *(f"transport.{name}" for name in (
                "no-version", "unknown-version", "unknown-action", "action-case", "no-action",
                "cut-form", "broken-xml", "invalid-xml", "other-root", "entity",
                "external-entity", "not-gzip",
            )),
            "guest.two-hotels", "guest.no-hotel", "guest.bad-moment", "handshake.no-json",
        },
    ),
    (no_challenge, {"transport.no-credentials", "transport.wrong-password"}),
    (get_answered, {"transport.get"}),
    (no_files, {"transport.file-part"}),
    (gzip_not_taken, {"transport.gzip"}),
    (echo_trimmed, {"handshake.echo"}),
    (warning_of_type_3, {"handshake.form"}),
    (all_announced, {f"handshake.{name}" for name in ("unknown", "offered", "empty", "ping")}),
    (more_announced_than_known, {"handshake.announced", "handshake.offered"}),
    (no_errors_of_its_own, {"guest.unknown-hotel", "handshake.no-json"}),
    (nested_without_end, {"handshake.empty"}),
    (hotels_told_apart, {"guest.foreign-hotel"}),
    (invalid_list, {"guest.list", "guest.since", "guest.since-later"}),
    (unknown_ids_refused, {"guest.unknown-id", "guest.unknown-refusal"}),
    (wrong_types, {"guest.content"}),
    (DoneWhenRead(), {"guest.again"}),
]  # fmt: skip
_ON_REQUEST: list[tuple[Callable[[Said], None], set[str]]] = [
    (any_case, {"transport.action-case"}),
    (dtd_taken, {"transport.entity", "transport.external-entity"}),
    (start_ignored, {"guest.bad-moment", "guest.since-later"}),
]


def name_of(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__) if callable(value) else ""


@pytest.mark.parametrize(("mistake", "found"), _ON_RESPONSE, ids=name_of)
async def test_mistake_in_a_response_is_found(
    tmp_path: Path, mistake: Callable[[Said], None], found: set[str]
) -> None:
    async with open_hub(tmp_path) as hub, faulty(hub, response=mistake) as url:
        await prepare(hub)
        done = await command("check", url, *_AS_DEMO)
        assert failures(done) == found and done.code == 1


@pytest.mark.parametrize(("mistake", "found"), _ON_REQUEST, ids=name_of)
async def test_mistake_in_reading_is_found(
    tmp_path: Path, mistake: Callable[[Said], None], found: set[str]
) -> None:
    async with open_hub(tmp_path) as hub, faulty(hub, request=mistake) as url:
        await prepare(hub)
        done = await command("check", url, *_AS_DEMO)
        assert failures(done) == found and done.code == 1


async def test_acknowledgement_that_is_forgotten_is_found(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, faulty(hub, request=NeverTaken()) as url:
        await prepare(hub)
        done = await command("check", url, *_AS_DEMO, "--write", "--only", "guest")
        assert failures(done) == {"guest.ack", "guest.refuse"}


async def test_error_that_is_a_page_and_a_client_id_that_is_wanted_are_found(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        async with faulty(hub, response=error_page) as url:
            done = await command("check", url, *_AS_DEMO, "--only", "transport")
            assert "transport.invalid-xml" in failures(done)
        async with faulty(hub, response=client_id_wanted) as url:
            words = ("check", url, *_AS_DEMO, "--only", "transport")
            assert (await command(*words)).code == 3
            done = await command(*words, "--client-id", "x")
            assert failures(done) == {"transport.no-client-id"}


async def test_check_ends_at_once_where_there_is_no_server_to_check(tmp_path: Path) -> None:
    async with scripted(lambda asked: http("<html>", "404 Not Found")) as peer:
        done = await command("check", peer.url, "--user", "demo")
        assert done.code == 3 and "check the URL" in done.err
        assert len(peer.asked) < 12
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        done = await command("check", url, "--user", "demo", password="wrong")
        assert done.code == 3 and "check the user name" in done.err
    done = await command("check", "http://127.0.0.1:9/", "--user", "demo", "--json")
    assert done.code == 3 and done.json["reason"] == "connect"
