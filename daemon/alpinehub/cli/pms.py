"""`alpinehub pms handshake|poll|ack|refuse|push-freerooms|send`: acts as hotel software."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import IO, Any

import click

from alpinehub.alpinebits.action import ACKNOWLEDGE, HANDSHAKE, READ
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.client import AlpineBitsClient, accepts_gzip
from alpinehub.alpinebits_client.message import HotelName, Period
from alpinehub.alpinebits_client.offer import offer
from alpinehub.cli.peer import converse, make_client, server_options, version_option
from alpinehub.cli.peer_view import finish, show_handshake, show_requests
from alpinehub.cli.session import as_json
from cordata.terminal import Group, add_options

_DAY = click.DateTime(["%Y-%m-%d"])


@click.group(
    cls=Group,
    short_help="Act as hotel software: send requests to an AlpineBits server.",
    examples="""
        export ALPINEHUB_PASSWORD=demo
        alpinehub pms handshake --url http://127.0.0.1:8080/api/alpinebits --user demo
        alpinehub pms poll --url http://127.0.0.1:8080/api/alpinebits --user demo --hotel DEMO --ack
    """,
    exit_codes="""
        0 accepted, 1 refused, or the answer does not conform to the protocol, 2 wrong usage, 3 no
        AlpineBits answer was received
    """,
)
def pms() -> None:
    """Act as hotel software: send requests to an AlpineBits server, this one or any other.

    With --json each answer is one line.
    """


def _with_client(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a server; the command gets the client made from them."""

    @wraps(function)
    def command(gzip: bool, json_: bool, **given: Any) -> int:
        names = ("user", "password_file", "client_id", "timeout", "ca_file", "insecure")
        client = make_client(**{name: given.pop(name) for name in ("url", "protocol", *names)})
        return function(client, gzip=gzip, json_=json_, **given)

    add = add_options(
        click.option("--url", required=True, help="The server's AlpineBits endpoint."),
        version_option,
        server_options,
        click.option(
            "--gzip",
            is_flag=True,
            help="Compress the request, after a first one has shown that the server accepts it.",
        ),
        as_json,
    )
    return add(command)


def _hotel(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a hotel; the command gets the HotelName made from them."""

    @wraps(function)
    def command(*args: Any, hotel: str, hotel_name: str, **given: Any) -> int:
        return function(*args, hotel=HotelName(code=hotel, name=hotel_name), **given)

    named = click.option(
        "--hotel-name", default="", help="HotelName; a server may accept it instead of the code."
    )
    return click.option("--hotel", default="", metavar="CODE", help="HotelCode.")(named(command))


@pms.command(
    short_help="Make a handshake, and show the capabilities in common.",
    examples="""
        alpinehub pms handshake --url https://hub.example/api/alpinebits --user edelweiss-pms
    """,
)
@_with_client
def handshake(client: AlpineBitsClient, *, gzip: bool, json_: bool) -> int:
    """Send the capabilities of hotel software, and show those that the server has, too.

    With 2017-10, which has no handshake, the server is asked for its version and capabilities.
    """
    if gzip:
        raise click.UsageError("a handshake is never compressed")
    if client.login.protocol.housekeeping:
        asked = [client.call("getVersion"), client.call("getCapabilities")]
        answers = [converse(one, json_) for one in asked]
    else:
        echo = offer()
        answers = [converse(client.call(HANDSHAKE, message.ping(echo)), json_)]
    return show_handshake(client, answers, json_)


@pms.command(
    short_help="Fetch the guest requests that wait for a hotel.",
    examples="""
        alpinehub pms poll --url https://hub.example/api/alpinebits --user pms --hotel EDELW
        alpinehub pms poll --url ... --user pms --hotel EDELW --since 2026-02-01T00:00:00Z --raw
        alpinehub pms poll --url ... --user pms --hotel EDELW --ack --json
    """,
)
@_with_client
@_hotel
@click.option(
    "--since", default="", metavar="TIME", help="All created since then, acknowledged or not."
)
@click.option("--ack", is_flag=True, help="Acknowledge all requests received.")
@click.option("--raw", is_flag=True, help="Print the answer unchanged.")
def poll(
    client: AlpineBitsClient,
    hotel: HotelName,
    since: str,
    ack: bool,
    raw: bool,
    *,
    gzip: bool,
    json_: bool,
) -> int:
    """Fetch the guest requests that wait for a hotel, and show them."""
    if not (hotel.code or hotel.name):
        raise click.UsageError("give --hotel CODE, or --hotel-name before 2024-10")
    document = message.read_requests(hotel, since)
    answer = converse(_send(client, READ, document, gzip), json_)
    came, code = show_requests(client, answer, raw=raw, json_=json_)
    if not (ack and came):
        return code
    report = message.notif_report(came, {})
    answer = converse(_send(client, ACKNOWLEDGE, report, gzip), json_)
    return finish(client, answer, ACKNOWLEDGE, f"{len(came)} acknowledged", json_)


@pms.command(
    examples="""
        alpinehub pms ack --url ... --user pms --id 019f1c434b00a8f1651ad6e57d014363 \\
            --id 019f1c4a5d1e92c7403be8d16fa05972:15
    """,
)
@_with_client
@click.option(
    "--id",
    "ids",
    multiple=True,
    required=True,
    metavar="ID[:15]",
    help="UniqueID, with :15 for a cancellation; may be repeated.",
)
def ack(client: AlpineBitsClient, ids: tuple[str, ...], *, gzip: bool, json_: bool) -> int:
    """Acknowledge guest requests: they are not delivered again."""
    taken = [_unique_id(written) for written in ids]
    report = message.notif_report(taken, {})
    answer = converse(_send(client, ACKNOWLEDGE, report, gzip), json_)
    return finish(client, answer, ACKNOWLEDGE, f"{len(taken)} acknowledged", json_)


@pms.command(
    short_help="Refuse guest requests, and say why.",
    examples="""
        alpinehub pms refuse --url ... --user pms --id 019f1c434b00a8f1651ad6e57d014363 \\
            --text "no such room"
    """,
)
@_with_client
@click.option(
    "--id", "ids", multiple=True, required=True, metavar="ID", help="UniqueID; may be repeated."
)
@click.option("--text", required=True, help="Why it cannot be processed.")
def refuse(
    client: AlpineBitsClient, ids: tuple[str, ...], text: str, *, gzip: bool, json_: bool
) -> int:
    """Refuse guest requests with a reason: they are not delivered again."""
    report = message.notif_report((), dict.fromkeys(ids, text))
    answer = converse(_send(client, ACKNOWLEDGE, report, gzip), json_)
    return finish(client, answer, ACKNOWLEDGE, f"{len(ids)} refused", json_)


@pms.command(
    "push-freerooms",
    short_help="Push the number of free rooms to the server.",
    examples="""
        alpinehub pms push-freerooms --url ... --user pms --hotel EDELW --room-type DZ \\
            --from 2027-02-01 --to 2027-02-28 --free 3
        alpinehub pms push-freerooms --url ... --user pms --hotel EDELW --complete --reset
        alpinehub pms push-freerooms --url ... --user pms --file freerooms.xml
    """,
)
@_with_client
@_hotel
@click.option("--file", type=click.File("rb"), help="Send this document unchanged.")
@click.option("--complete", is_flag=True, help="A complete set: what it does not name is deleted.")
@click.option("--reset", is_flag=True, help="With --complete: no rooms at all.")
@click.option("--room-type", default="", help="InvTypeCode; none: a closed season.")
@click.option("--room", default="", help="InvCode: one room.")
@click.option("--from", "start", type=_DAY, help="First day (YYYY-MM-DD).")
@click.option("--to", "end", type=_DAY, help="Last day.")
@click.option("--free", type=click.IntRange(0), default=0, help="Bookable rooms; 0: fully booked.")
@click.option("--out-of-order", type=click.IntRange(0), default=0, help="Since 2020-10.")
@click.option("--out-of-market", type=click.IntRange(0), default=0, help="Since 2020-10.")
def push_freerooms(
    client: AlpineBitsClient,
    hotel: HotelName,
    file: IO[bytes] | None,
    complete: bool,
    reset: bool,
    start: datetime | None,
    end: datetime | None,
    *,
    gzip: bool,
    json_: bool,
    **counts: Any,
) -> int:
    """Push the number of free rooms to the server: a period, a closed season, or a document."""
    protocol = client.login.protocol
    if not (file or hotel.code or hotel.name):
        raise click.UsageError("give --hotel CODE, or a whole document with --file")
    if reset and not complete:
        raise click.UsageError("--reset needs --complete")
    if not (file or reset) and (start is None or end is None):
        raise click.UsageError("give --from and --to, --reset, or --file")
    periods = []
    if start is not None and end is not None:
        periods.append(Period(start=f"{start:%Y-%m-%d}", end=f"{end:%Y-%m-%d}", **counts))
    action, document = message.free_rooms(protocol, hotel, periods, complete=complete)
    if file:
        document = file.read()
    answer = converse(_send(client, action, document, gzip), json_)
    return finish(client, answer, action, "free rooms pushed", json_)


@pms.command(
    examples="""
        alpinehub pms send --url ... --user pms --action OTA_HotelDescriptiveInfo:Inventory \\
            --file request.xml
    """,
)
@_with_client
@click.option("--action", required=True, help="Value of the form field `action`.")
@click.option("--file", type=click.File("rb"), required=True, help="The document; - is stdin.")
def send(client: AlpineBitsClient, action: str, file: IO[bytes], *, gzip: bool, json_: bool) -> int:
    """Send any document, and print the answer unchanged."""
    answer = converse(_send(client, action, file.read(), gzip), json_)
    return finish(client, answer, action, "", json_, body=True)


async def _send(client: AlpineBitsClient, action: str, document: bytes, gzip: bool) -> Any:
    """Send a request, compressed only after the server has announced that it accepts gzip."""
    if gzip:
        protocol = client.login.protocol
        first = ("getVersion", None) if protocol.housekeeping else (HANDSHAKE, message.ping("{}"))
        if not accepts_gzip(await client.call(*first)):
            raise click.ClickException("the server does not announce that it accepts gzip")
    return await client.call(action, document, gzip=gzip)


def _unique_id(written: str) -> tuple[str, str]:
    unique_id, _, kind = written.partition(":")
    if kind not in ("", "14", "15") or not unique_id:
        raise click.UsageError(f"{written!r} must be ID, ID:14 or ID:15")
    return kind or "14", unique_id
