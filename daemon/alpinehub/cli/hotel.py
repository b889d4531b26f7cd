"""`alpinehub hotel add|list|show|data|messages|set|disable|enable`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from alpinehub import hotels
from alpinehub.alpinebits import hotel_data
from alpinehub.cli.session import Hub, hub_options, show_document
from alpinehub.models import FEATURES
from alpinehub.settings import HubSettings
from cordata.terminal import Group, limit_option, show_page, show_record

#: Value of an option for "as for all hotels".
_DEFAULT = "default"


@click.group(cls=Group)
def hotel() -> None:
    """Hotels: settings, enabled features, hotel data."""


@hotel.command(
    examples="""
        alpinehub hotel add EDELW --name "Hotel Edelweiss" --time-zone Europe/Vienna --region AT
    """,
)
@click.argument("code")
@click.option("--name", required=True, help="Name, as hotel software shows it.")
@click.option(
    "--time-zone", default="Europe/Rome", show_default=True, help="Time zone of the hotel's days."
)
@click.option(
    "--language",
    default="de",
    show_default=True,
    help="ISO 639-1, lower case; mails are in de, it or en.",
)
@click.option("--region", default="IT", show_default=True, help="Country of its telephone numbers.")
@click.option("--report-email", metavar="ADDRESSES", help="Recipients of the daily report.")
@hub_options
def add(hub: Hub, /, **given: Any) -> None:
    """Add a hotel. CODE is its AlpineBits HotelCode."""
    new = hotels.NewHotel(**given)
    hotel_id = hub.run(lambda ctx: hotels.add_hotel(ctx.store, new))
    hub.print_result({"id": hotel_id, "code": new.code}, f"hotel {new.code} added")


@hotel.command("list")
@hub_options
def list_(hub: Hub) -> None:
    """List all hotels."""
    rows = hub.run(lambda ctx: hotels.list_hotels(ctx.store))
    columns = ("code", "name", "time_zone", "language", "region", "accounts", "sources")
    show_page(rows, (*columns, "report_email", "disabled_at"), json_=hub.json)


@hotel.command("show", short_help="Show a hotel, its settings and its data.")
@click.argument("code")
@hub_options
def show_(hub: Hub, code: str) -> None:
    """Show a hotel: its settings, what its software may do, and which hotel data it sent."""
    found = hub.run(lambda ctx: hotels.show_hotel(ctx.store, code))
    documents = hub.run(lambda ctx: hotel_data.overview(ctx.store, code))
    show_record({**found, "data": documents}, json_=hub.json)


@hotel.command(
    short_help="Show the data that hotel software sent about a hotel.",
    examples="""
        alpinehub hotel data EDELW freerooms
        alpinehub hotel data EDELW inventory | xmllint --format -
    """,
)
@click.argument("code")
@click.argument("what", type=click.Choice(tuple(hotel_data.COLUMNS)))
@hub_options
def data(hub: Hub, code: str, what: str) -> None:
    """Show the data that hotel software sent about a hotel: free rooms, inventory, rate plans,
    activities.
    """
    rows = hub.run(lambda ctx: hotel_data.read_data(ctx.store, code, what))
    columns = hotel_data.COLUMNS[what]
    if columns == ("xml",) and not hub.json:
        for row in rows:
            show_document(str(row["xml"]).encode())
        return
    show_page(rows, columns, json_=hub.json)


@hotel.command(
    short_help="List the messages that carried hotel data.",
    examples="alpinehub hotel messages EDELW --limit 10",
)
@click.argument("code")
@limit_option
@hub_options
def messages(hub: Hub, code: str, limit: int) -> None:
    """List the messages in which hotel software sent hotel data, and how each was answered, the
    newest first.
    """
    rows = hub.run(lambda ctx: hotel_data.list_messages(ctx.store, code, limit + 1))
    show_page(rows[:limit], hotel_data.MESSAGE_COLUMNS, paged=False, json_=hub.json)
    if len(rows) > limit:
        click.echo("there is more: raise --limit", err=True)


_feature = click.Choice(FEATURES)
#: Retention settings, in days.
_RETENTION_KEYS = tuple(one.name for one in fields(HubSettings) if one.name.endswith("_days"))


@hotel.command(
    "set",
    examples="""
        alpinehub hotel set EDELW --off deltas --off rooms
        alpinehub hotel set EDELW --stale-after 6 --alert-email reception@edelw.example
        alpinehub hotel set EDELW --stale-after default --on rooms
        alpinehub hotel set EDELW --retention customer_days=365 --retention inbox_days=default
    """,
)
@click.argument("code")
@click.option("--name", help="Name, as hotel software shows it.")
@click.option("--time-zone", help="Time zone of the hotel's days.")
@click.option("--language", help="ISO 639-1, lower case; mails are in de, it or en.")
@click.option("--region", help="Country of its telephone numbers, ISO 3166.")
@click.option(
    "--report-email", metavar="ADDRESSES", help='Recipients of the daily report; "": none.'
)
@click.option(
    "--alert-email",
    metavar="ADDRESSES",
    help='Recipients of the alert when its software no longer polls; "": none.',
)
@click.option(
    "--report-language", type=click.Choice(["de", "it", "en", ""]), metavar="LANGUAGE",
    help='Language of its mails: de, it or en; "": the language of the hotel.',
)  # fmt: skip
@click.option(
    "--stale-after", metavar="HOURS",
    help="Hours without a poll until an alert; 0: never; default: as for all hotels.",
)  # fmt: skip
@click.option(
    "--retention", multiple=True, metavar="KEY=DAYS",
    help=f"How long data is kept: {', '.join(_RETENTION_KEYS)}; 0: for ever; default: as for all "
    "hotels. May be repeated.",
)  # fmt: skip
@click.option("--off", multiple=True, type=_feature, help="Disable a feature; may be repeated.")
@click.option("--on", multiple=True, type=_feature, help="Enable a feature; may be repeated.")
@hub_options
def set_(
    hub: Hub,
    /,
    code: str,
    stale_after: str | None,
    alert_email: str | None,
    report_language: str | None,
    retention: tuple[str, ...],
    off: tuple[str, ...],
    on: tuple[str, ...],
    **columns: str | None,
) -> None:
    """Change a hotel; settings without an option stay as they are.

    Requests for a disabled feature are refused, and it is not announced to hotel software.
    """
    settings: dict[str, int | str | None] = {}
    if stale_after is not None:
        hours = _number(stale_after, "--stale-after must be a number of hours")
        settings["stale_after_h"] = hours
    texts = {"alert_email": alert_email, "report_language": report_language}
    settings |= {name: text for name, text in texts.items() if text is not None}
    change = hotels.HotelChange(
        columns={name: value for name, value in columns.items() if value is not None},
        settings=settings,
        on=frozenset(on),
        off=frozenset(off),
        retention=dict(map(_days, retention)),
    )
    if both := sorted(change.on & change.off):
        raise click.UsageError(f"{both[0]} is both in --on and --off")
    if not any((change.columns, change.settings, change.on, change.off, change.retention)):
        raise click.UsageError("no change is given; see --help")
    hub.run(lambda ctx: hotels.change_hotel(ctx.store, code, change))
    record = hub.run(lambda ctx: hotels.show_hotel(ctx.store, code))
    hub.print_result(record, f"hotel {code} changed")


def _days(text: str) -> tuple[str, int | None]:
    """KEY and DAYS of KEY=DAYS; None for `default`. Raises: UsageError."""
    key, _, days = text.partition("=")
    if key not in _RETENTION_KEYS:
        near = hotels.nearest(key, list(_RETENTION_KEYS)) or f"one of {', '.join(_RETENTION_KEYS)}"
        raise click.UsageError(f"--retention {key!r} is not known; {near}")
    return key, _number(days, f"--retention {key}= must be a number of days")


def _number(text: str, problem: str) -> int | None:
    """A number; None for `default`. Raises: UsageError with the problem."""
    if text == _DEFAULT:
        return None
    if not text.isdecimal() or len(text) > 5:
        raise click.UsageError(f"{problem} or {_DEFAULT}")
    return int(text)


@hotel.command(short_help="Disable a hotel: its sources and software are refused.")
@click.argument("code")
@hub_options
def disable(hub: Hub, code: str) -> None:
    """Disable a hotel: requests of its sources and its software are refused. Nothing is deleted."""
    hub.run(lambda ctx: hotels.set_hotel_disabled(ctx.store, code, True))
    hub.print_result({"code": code, "disabled": True}, f"hotel {code} disabled")


@hotel.command()
@click.argument("code")
@hub_options
def enable(hub: Hub, code: str) -> None:
    """Enable a disabled hotel."""
    hub.run(lambda ctx: hotels.set_hotel_disabled(ctx.store, code, False))
    hub.print_result({"code": code, "disabled": False}, f"hotel {code} enabled")
