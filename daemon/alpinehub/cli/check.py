"""`alpinehub check`: checks whether a server conforms to the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, get_args

import click

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits_client.reply import describe_rejection
from alpinehub.check import guest, handshake, transport
from alpinehub.check.peer import Peer, served_by
from alpinehub.check.suite import Check, CheckRun, Outcome, run_suite
from alpinehub.cli.peer import TransportFailed, converse, make_client, server_options
from alpinehub.cli.session import as_json
from cordata.terminal import Command, ProgressBar, printable, show_json, show_table

_AREAS = {"transport": transport.CHECKS, "handshake": handshake.CHECKS, "guest": guest.CHECKS}


@click.command(
    cls=Command,
    short_help="Check an AlpineBits server for errors.",
    examples="""
        export ALPINEHUB_PASSWORD=demo
        alpinehub check http://127.0.0.1:8080/api/alpinebits --user demo --hotel DEMO
        alpinehub check https://hub.example/alpinebits --user pms --only handshake --json
    """,
    exit_codes="""
        0 no check failed, 1 a check failed, 2 wrong usage, 3 the server cannot be reached, or
        refuses all requests of this user
    """,
)
@click.argument("url")
@server_options
@click.option("--hotel", default="", metavar="CODE", help="A hotel that the user may read.")
@click.option("--foreign-hotel", default="", metavar="CODE", help="One that they may not read.")
@click.option(
    "--version",
    "versions",
    type=click.Choice(list(PROTOCOLS)),
    multiple=True,
    help="Only this version; may be repeated.  [default: all that the server serves]",
)
@click.option(
    "--only",
    type=click.Choice(list(_AREAS)),
    multiple=True,
    help="Only these checks; may be repeated.",
)
@click.option("--write", is_flag=True, help="Also acknowledge and refuse waiting guest requests.")
@click.option("--stress", is_flag=True, help="Also send requests that can stop a weak server.")
@as_json
def check(
    url: str,
    hotel: str,
    foreign_hotel: str,
    versions: tuple[str, ...],
    only: tuple[str, ...],
    write: bool,
    stress: bool,
    json_: bool,
    **login: Any,
) -> int:
    """Check an AlpineBits server: transport, handshake and guest requests.

    Nothing is changed there, except with --write. But a server may store the last handshake of a
    login: hotel software with the same login may need another handshake after the check (in
    2018-10 to agree on BookingThreshold).
    """
    client = make_client(url=url, **login)
    peer = Peer(client=client, hotel=hotel, foreign_hotel=foreign_hotel)
    checks = [one for name, all_ in _AREAS.items() if not only or name in only for one in all_]
    done = converse(_run(peer, checks, versions, write=write, stress=stress), json_)
    counts: Counter[Outcome] = Counter(one.result.outcome for one in done)
    if json_:
        summary: dict[str, int] = {name: counts[name] for name in get_args(Outcome)}
        records = [_record(one) for one in done]
        show_json({"url": client.login.url.redacted, **summary, "checks": records})
    else:
        _show(done, counts)
    return 1 if counts["failed"] else 0


async def _run(
    peer: Peer, checks: Sequence[Check], versions: tuple[str, ...], *, write: bool, stress: bool
) -> list[CheckRun]:
    """Run the checks in the versions that the server serves.

    Raises: RequestFailed, TransportFailed.
    """
    with ProgressBar() as bar:
        bar.draw(None, "asking which versions the server serves")
        served = await served_by(peer)
        if not served:
            what, hint = describe_rejection(await peer.harmless())
            raise TransportFailed(f"the server serves no version to this login: {what}", hint)
        chosen = {name: one for name, one in served.items() if not versions or name in versions}
        if not chosen:
            raise TransportFailed(f"the server does not serve {', '.join(versions)}")
        peer = replace(peer, protocols=chosen)
        return await run_suite(peer, checks, write=write, stress=stress, draw=bar.draw)


def _record(one: CheckRun) -> dict[str, object]:
    return {
        "check": one.check.id,
        "version": one.version or None,
        "result": one.result.outcome,
        "what": one.check.title,
        "detail": one.result.detail or None,
        "took_ms": one.took_ms,
    }


def _show(done: Sequence[CheckRun], counts: Mapping[Outcome, int]) -> None:
    """Print a row for each check; several if its result is not the same in all versions."""
    rows = []
    for (check, result), group in groupby(done, key=lambda one: (one.check, one.result)):
        versions = [one.version for one in group if one.version]
        rows.append(
            {
                "check": check.id,
                "result": result.outcome,
                "versions": _version_range(versions),
                "what": check.title,
                "detail": printable(result.detail) or None,
            }
        )
    show_table(rows, ("check", "result", "versions", "what", "detail"))
    click.echo(
        f"{counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['warning']} warnings, {counts['skipped']} skipped"
    )


def _version_range(versions: Sequence[str]) -> str | None:
    """The first and the last version, such as `2017-10 to 2024-10`; None for none."""
    if len(versions) < 2:
        return "".join(versions) or None
    return f"{versions[0]} to {versions[-1]}"
