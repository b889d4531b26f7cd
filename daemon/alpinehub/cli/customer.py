"""`alpinehub customer find|show|export|erase`: the stored data of a person."""

from __future__ import annotations

import json
import sys
import syslog
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from alpinehub.cli.session import OPERATOR, ROW_NUMBER, Hub, hub_options, with_hub
from alpinehub.customers import erasure, search
from alpinehub.customers.export import export as export_customers
from alpinehub.hotels import Unusable
from cordata import Context
from cordata.terminal import Group, add_options, new_file, show_json, show_page, show_records

_hotel = click.option("--hotel", metavar="CODE", help="Of this hotel only.")
_COLUMNS = ("id", "hotel", "first_name", "last_name", "email", "phone", "requests")


#: Exactly one of --email, --phone and --id identifies a customer.
_customer_options = add_options(
    click.option("--email", metavar="ADDRESS", help="An e-mail address."),
    click.option("--phone", metavar="NUMBER", help="A telephone number, however written."),
    click.option("--id", "id_", type=ROW_NUMBER, help="The customer's number."),
    _hotel,
)
#: For commands that must not touch another hotel's data by accident: each hotel is responsible for
#: the data of its guests.
_customer_and_scope_options = add_options(
    _customer_options,
    click.option(
        "--all-hotels", is_flag=True, help="Of all hotels that have this address or number."
    ),
)


@click.group(cls=Group)
def customer() -> None:
    """Guests of the hotels: find, show, export, erase."""


@customer.command(
    short_help="Find customers by address, number or name.",
    examples="""
        alpinehub customer find eva@example.com
        alpinehub customer find "0471 123456" --hotel EDELW
        alpinehub customer find Muster --json
    """,
)
@click.argument("text")
@_hotel
@hub_options
def find(hub: Hub, text: str, hotel: str | None) -> None:
    """Find customers by TEXT: an e-mail address, a telephone number, or a part of the name. By
    name, it finds the newest 50 at most.

    The output is personal data: it is shown only on a terminal or with --json, and each use is
    written to syslog.
    """
    if not hub.json and not sys.stdout.isatty():
        raise click.UsageError("personal data is shown on a terminal only; use --json")
    digits = sum(character in "0123456789" for character in text)
    by: dict[str, Any] = {"name": text}
    if "@" in text:
        by = {"email": text}
    elif digits >= 4 and not any(character.isalpha() for character in text):
        by = {"phone": text}
    found = hub.run(lambda ctx: search.find(ctx.store, hotel=hotel, **by))
    more = "name" in by and len(found) > search.MAX_FOUND
    if more:
        found = found[-search.MAX_FOUND :]
    _note("find", found)
    show_page(found, _COLUMNS, paged=False, json_=hub.json)
    if more:
        click.echo("there is more: give more of the name, or --hotel", err=True)


@customer.command(
    "show",
    examples="alpinehub customer show --email eva@example.com",
)
@_customer_options
@hub_options
def show_(hub: Hub, /, **who: Any) -> None:
    """Show the stored data of a customer. `export` also has all that they sent."""
    found = hub.run(lambda ctx: _one_or_more(ctx, **who))
    _note("show", found)
    hidden = ("hotel_id", "phone_due")
    records = [
        {name: value for name, value in one.items() if value is not None and name not in hidden}
        for one in found
    ]
    for record in records:
        if "consent" in record:
            record["consent"] = bool(record["consent"])
    show_records(found if hub.json else records, json_=hub.json)


@customer.command(
    short_help="Export all stored data of a person as JSON.",
    examples="""
        alpinehub customer export --email eva@example.com --hotel EDELW --output eva.json
        alpinehub customer export --phone "+39 0471 123456" --all-hotels
    """,
)
@_customer_and_scope_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A new file, readable by its owner only.  [default: standard output]",
)
@with_hub
def export(hub: Hub, /, output: Path | None, all_hotels: bool, **who: Any) -> None:
    """Export all stored data of a person as JSON: name and addresses, the hashes, each version of
    each guest request, the submissions, the deliveries and their states.

    With --email or --phone, give --hotel CODE or --all-hotels, too.
    """
    _require_hotel(all_hotels, **who)

    async def act(ctx: Context) -> tuple[Sequence[Any], Sequence[Any]]:
        customers = await _one_or_more(ctx, **who)
        return customers, await export_customers(ctx.store, customers)

    if output is None:
        found, documents = hub.run(act)
        show_json({"customers": documents})
    else:
        with new_file(output, hint="give another file with --output") as write:
            found, documents = hub.run(act)
            text = json.dumps({"customers": documents}, indent=2, ensure_ascii=False)
            # Half of a surrogate pair is escaped, as by show_json.
            write(f"{text}\n".encode("utf-8", "backslashreplace"))
        click.echo(f"{_counted(found)} of {_hotels(found)} written to {output}")
    _note("export", found)


@customer.command(
    examples="""
        alpinehub customer erase --email eva@example.com --hotel EDELW --dry-run
        alpinehub customer erase --email eva@example.com --hotel EDELW --reason letter --yes
        alpinehub customer erase --email eva@example.com --all-hotels
    """,
)
@_customer_and_scope_options
@click.option("--reason", default="", help="For the history of the requests; no personal data.")
@click.option("--dry-run", is_flag=True, help="Only show what would be erased.")
@click.option(
    "--force", is_flag=True, help="Also guest requests that still wait for hotel software."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@hub_options
def erase(
    hub: Hub,
    /,
    reason: str,
    dry_run: bool,
    force: bool,
    yes: bool,
    all_hotels: bool,
    **who: Any,
) -> None:
    """Erase a person's data. The stay, price and history of each guest request remain, without
    personal data.

    With --email or --phone, give --hotel CODE or --all-hotels, too. Data that hotel software has
    fetched stays there, and backups are not changed.
    """
    _require_hotel(all_hotels, **who)

    async def look(ctx: Context) -> tuple[Sequence[Any], int]:
        found = await _one_or_more(ctx, **who)
        return found, await erasure.count_waiting(ctx.store, found)

    found, waiting = hub.run(look)
    requests = sum(one["requests"] for one in found)
    sentence = (
        f"{_counted(found)} of {_hotels(found)} with {requests} guest requests,"
        f" of which {waiting} wait"
    )
    if dry_run:
        hotels = sorted({one["hotel"] for one in found})
        record = {
            "hotels": hotels,
            "customers": len(found),
            "requests": requests,
            "waiting": waiting,
        }
        hub.print_result(record, f"{sentence}: nothing was erased")
        return
    if not yes:
        click.confirm(f"erase {sentence}? It cannot be undone", abort=True, err=True)

    async def act(ctx: Context) -> erasure.Erased:
        why = erasure.Reason(by=OPERATOR, reason=reason, force=force)
        erased = await erasure.erase(ctx.store, found, why)
        await ctx.store.checkpoint()  # their data leaves the write-ahead log, too
        return erased

    erased = hub.run(act)
    _note("erase", found)
    text = (
        f"erased: customers {erased.customers}, guest requests {erased.requests};"
        f" also submissions {erased.inbox}, old versions {erased.versions},"
        f" mails {erased.mails}"
    )
    hub.print_result(asdict(erased), text)


async def _one_or_more(
    ctx: Context, *, email: str | None, phone: str | None, id_: int | None, hotel: str | None
) -> list[dict[str, Any]]:
    """The customers that the options name. Raises: Unusable if there is none."""
    if sum(value is not None for value in (email, phone, id_)) != 1:
        raise click.UsageError("name the customer: one of --email, --phone and --id")
    found = await search.find(ctx.store, email=email, phone=phone, id=id_, hotel=hotel)
    if not found:
        raise Unusable("no such customer", hint="search with `alpinehub customer find`")
    return found


def _require_hotel(
    all_hotels: bool, *, email: str | None, phone: str | None, id_: int | None, hotel: str | None
) -> None:
    """Raises: UsageError if the options name no hotel; a customer's id belongs to one hotel."""
    if hotel is not None and all_hotels:
        raise click.UsageError("--hotel and --all-hotels exclude each other")
    if id_ is None and hotel is None and not all_hotels:
        raise click.UsageError(
            "give --hotel CODE, or --all-hotels for all hotels that have data of the person"
        )


def _hotels(found: Sequence[Any]) -> str:
    return ", ".join(sorted({one["hotel"] for one in found}))


def _note(what: str, found: Sequence[Any]) -> None:
    """Log the operator and the ids of the customers to syslog."""
    ids = " ".join(str(one["id"]) for one in found[:50])
    syslog.syslog(
        syslog.LOG_INFO,
        f"alpinehub customer {what} by {OPERATOR}: {len(found)} customers: {ids}",
    )


def _counted(found: Sequence[Any]) -> str:
    return "1 customer" if len(found) == 1 else f"{len(found)} customers"
