"""Prints the answers of an AlpineBits server, as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from alpinehub.alpinebits import handshake_json
from alpinehub.alpinebits.action import answered_by
from alpinehub.alpinebits.handshake_json import NoCapabilities
from alpinehub.alpinebits_client.client import AlpineBitsClient, accepts_gzip
from alpinehub.alpinebits_client.guest import Received, read
from alpinehub.alpinebits_client.http import HttpResponse
from alpinehub.alpinebits_client.reply import (
    HANDSHAKE_STATUS,
    Reply,
    describe_rejection,
    read_reply,
)
from alpinehub.cli.peer import TransportFailed
from alpinehub.cli.session import show_document
from cordata.terminal import printable, show_json, show_table

_DONE = ("success", "advisory")


def show_handshake(client: AlpineBitsClient, answers: Sequence[HttpResponse], json_: bool) -> int:
    """Print the common capabilities by version. Returns the exit code. Raises: TransportFailed."""
    if client.login.protocol.housekeeping:
        _show_housekeeping(client, answers, json_)
        return 0
    [answer] = answers
    reply = _reply(client, answer, "OTA_PingRS", json_)
    common, problem = _common(reply)
    record = {
        **_record(client, answer, reply),
        "gzip": accepts_gzip(answer),
        "versions": common,
    }
    if problem:
        record["problem"] = problem
    if json_:
        show_json(record, one_line=True)
    else:
        _headline(client, answer, reply)
        click.echo(f"gzip: {'accepted' if accepts_gzip(answer) else 'not announced'}")
        rows = list(_lines(common))
        if rows:
            show_table(rows, ("version", "action", "supports"))
        if problem:
            click.echo(f"problem: {problem}")
    return 1 if problem else _exit_code(reply)


def _exit_code(reply: Reply) -> int:
    return 1 if reply.invalid or reply.outcome not in _DONE else 0


def _lines(
    common: Mapping[str, Mapping[str, Sequence[str]]],
) -> Iterator[dict[str, str | None]]:
    """A row for each support; a version or action equal to that of the row before is blank."""
    for version, actions in common.items():
        first: str | None = printable(version)
        for action, supports in (actions or {"-": ()}).items():
            named: str | None = printable(action)
            for support in supports or ("",):
                shown = printable(support) or None
                yield {"version": first or "", "action": named or "", "supports": shown}
                first = named = None


def _common(reply: Reply) -> tuple[Mapping[str, Mapping[str, Sequence[str]]], str]:
    """Version -> action -> supports in common, and the mistake in the answer ("" if none)."""
    found = [one.text for one in reply.remarks if one.status == HANDSHAKE_STATUS]
    if len(found) != 1:
        return {}, "" if reply.outcome == "error" else "there is no ALPINEBITS_HANDSHAKE warning"
    try:
        return handshake_json.decode(found[0]), ""
    except NoCapabilities:
        return {}, "the ALPINEBITS_HANDSHAKE warning is not the JSON of a handshake"


def _show_housekeeping(
    client: AlpineBitsClient, answers: Sequence[HttpResponse], json_: bool
) -> None:
    """Print the answers to getVersion and getCapabilities: each is "OK:" and the value."""
    values = []
    for answer in answers:
        text = answer.body.decode("utf-8", "replace").strip()
        if answer.status != 200 or not text.startswith("OK:"):
            what, hint = describe_rejection(answer)
            if json_:
                record = {"outcome": "refused", "status": answer.status, "text": what}
                show_json(record, one_line=True)
            raise TransportFailed(what, hint)
        values.append(printable(text.removeprefix("OK:")))
    version, names = values[0], [name for name in values[1].split(",") if name]
    if json_:
        record = {"outcome": "success", "status": 200, "gzip": accepts_gzip(answers[0])}
        show_json({**record, "version": version, "capabilities": names}, one_line=True)
        return
    click.echo(f"{client.login.url.redacted}  speaks AlpineBits {version}")
    click.echo("\n".join(names))


def show_requests(
    client: AlpineBitsClient, answer: HttpResponse, *, raw: bool, json_: bool
) -> tuple[list[tuple[str, str]], int]:
    """Print the guest requests of an answer. Returns (UniqueID type, ID) of each, and the exit
    code. Raises: TransportFailed.
    """
    if raw:
        show_document(answer.body)
    reply = _reply(client, answer, "OTA_ResRetrieveRS", json_ and not raw)
    came = [read(one) for one in reply.all("HotelReservation")]
    if json_ and not raw:
        requests = [msgspec.to_builtins(one) for one in came]
        show_json({**_record(client, answer, reply), "requests": requests}, one_line=True)
    elif not raw:
        _headline(client, answer, reply)
        if rows := [_row(one) for one in came]:
            show_table(rows, tuple(rows[0]))
        if reply.outcome != "error":
            click.echo(f"{len(came)} guest request{'s' * (len(came) != 1)}")
    return [(one.type, one.id) for one in came if one.id], _exit_code(reply)


def _row(one: Received) -> dict[str, object]:
    data = one.data
    ages = ", ".join(map(str, data.children))
    name = f"{data.first_name} {data.last_name}".strip()
    arrival = str(data.arrival or "")
    if data.arrival_latest:
        arrival += f" to {data.arrival_latest}, {data.nights} nights"
    row = {
        "type": one.type,
        "id": one.id,
        "status": one.res_status,
        "arrival": arrival,
        "departure": str(data.departure or ""),
        "guests": f"{data.adults} + {ages}" if ages else str(data.adults or ""),
        "name": name,
        "email": data.email,
        "room_type": data.room_type,
        "total": f"{data.total} {data.currency}" if data.total is not None else "",
    }
    return {column: printable(value) or None for column, value in row.items()}


def finish(
    client: AlpineBitsClient,
    answer: HttpResponse,
    action: str,
    done: str,
    json_: bool,
    *,
    body: bool = False,
) -> int:
    """Print the result of a request: the text `done` if it was accepted, with `body` the answer
    itself.

    Returns the exit code. Raises: TransportFailed.
    """
    reply = _reply(client, answer, answered_by(action), json_)
    if json_:
        show_json(_record(client, answer, reply), one_line=True)
    else:
        _headline(client, answer, reply)
        if body:
            show_document(answer.body)
        elif reply.outcome in _DONE:
            click.echo(done)
    return _exit_code(reply)


def _reply(client: AlpineBitsClient, answer: HttpResponse, expected: str, json_: bool) -> Reply:
    """Parse an answer. Raises: TransportFailed if it is not AlpineBits."""
    reply = read_reply(answer, expected, client.login.protocol)
    if reply.root is None:
        if json_:
            show_json(_record(client, answer, reply), one_line=True)
        raise TransportFailed(reply.text, reply.hint)
    return reply


def _record(client: AlpineBitsClient, answer: HttpResponse, reply: Reply) -> dict[str, Any]:
    """The JSON fields that all answers have."""
    return {
        "outcome": reply.outcome,
        "status": answer.status,
        "protocol": client.login.protocol.name,
        "message": reply.name or None,
        "took_ms": answer.took_ms,
        "remarks": [
            msgspec.to_builtins(one) for one in reply.remarks if one.status != HANDSHAKE_STATUS
        ],
        "invalid": reply.invalid or None,
        "text": reply.text or None,
    }


def _headline(client: AlpineBitsClient, answer: HttpResponse, reply: Reply) -> None:
    """Print the outcome in one line, and the server's remarks below it."""
    what = f"AlpineBits {client.login.protocol.name}, {answer.took_ms} ms"
    click.echo(f"{client.login.url.redacted}  {what}: {reply.outcome}")
    for one in reply.remarks:
        if one.status == HANDSHAKE_STATUS:
            continue
        names = (("code", one.code), (one.status, one.status), ("for", one.record))
        parts = [f"{name} {value}" if name != value else value for name, value in names if value]
        where = f" ({', '.join(parts)})" if parts else ""
        click.echo(f"{one.kind}{printable(where)}: {printable(one.text)}")
    if reply.text:
        click.echo(f"problem: {reply.text}")
    if reply.invalid:
        click.echo(f"invalid: {reply.name} does not conform to the schema: {reply.invalid}")
