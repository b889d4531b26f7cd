"""`alpinehub customer find|show|export|erase`: the stored data of a person."""

from __future__ import annotations

import json
import sys
import syslog
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import click
from msgspec.structs import asdict

from alpinehub.cli.session import OPERATOR, ROW_NUMBER, Hub, empty_log, hub_options, with_hub
from alpinehub.customers import erasure, search
from alpinehub.customers.export import export as export_customers
from alpinehub.customers.traces import FoundSubmission, Traces, find_by_name
from alpinehub.hotels import Unusable
from cordata import Context
from cordata.terminal import (
    Group,
    ProgressBar,
    add_options,
    as_record,
    new_file,
    show_json,
    show_records,
    show_table,
)

_hotel = click.option("--hotel", metavar="CODE", help="Of this hotel only.")
_COLUMNS = ("id", "hotel", "first_name", "last_name", "email", "phone", "requests")
_SUBMISSION = ("id", "received_at", "hotel", "source", "state", "found_by")
#: A shorter search shows no progress bar.
_SHOWN_AFTER_S = 1.0
_SHOWN_EVERY_S = 0.2


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
    """Guests of the hotels: find, show, export, erase.

    These commands also search the submissions of the inbox, so they find persons who are not
    customers, too. An address counts as a whole, a telephone number with or without its country
    code and however its digits are separated.
    """


@customer.command(
    short_help="Find customers and submissions by address, number or name.",
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
    """Find customers by TEXT: an e-mail address, a telephone number, or a part of the name.

    Also list submissions of the inbox that name the person and are not of these customers'
    requests. A name counts there as whole words, in submissions of no guest request. By name, it
    finds the newest 50 of each at most.

    The output is personal data: it is shown only on a terminal or with --json, and each use is
    written to syslog. `alpinehub inbox show ID` shows a submission.
    """
    if not hub.json and not sys.stdout.isatty():
        raise click.UsageError("personal data is shown on a terminal only; use --json")
    digits = sum(character in "0123456789" for character in text)
    query = None
    if "@" in text:
        query = search.PersonQuery(email=text, hotel=hotel)
    elif digits >= 4 and not any(character.isalpha() for character in text):
        query = search.PersonQuery(phone=text, hotel=hotel)

    async def act(ctx: Context) -> tuple[list[search.Customer], list[FoundSubmission]]:
        with _progress() as progress:
            if query is not None:
                return await erasure.find_submissions_of(ctx.store, query, progress=progress)
            customers = await search.find(ctx.store, name=text, hotel=hotel)
            return customers, await find_by_name(ctx.store, text, hotel=hotel, progress=progress)

    customers, submissions = hub.run(act)
    more = query is None and max(len(customers), len(submissions)) > search.MAX_FOUND
    if more:
        customers = customers[-search.MAX_FOUND :]
        submissions = submissions[-search.MAX_FOUND :]
    _note("find", customers, submissions)
    if hub.json:
        _show_json(customers, submissions)
    else:
        show_table(customers, _COLUMNS)
        _show_submissions(submissions)
    if not customers and not submissions:
        click.echo("nothing found", err=True)
    if more:
        click.echo("there is more: give more of the name, or --hotel", err=True)


@customer.command(
    "show",
    short_help="Show the stored data of a customer.",
    examples="alpinehub customer show --email eva@example.com",
)
@_customer_options
@hub_options
def show_(hub: Hub, /, **who: Any) -> None:
    """Show the stored data of a customer, and the list of submissions that name them but are not of
    their guest requests. `export` also has all that they sent.
    """
    query = _query(**who)

    async def act(ctx: Context) -> tuple[list[search.Customer], list[FoundSubmission]]:
        with _progress() as progress:
            found = await erasure.find_submissions_of(ctx.store, query, progress=progress)
        _require_any(query, *found)
        return found

    customers, submissions = hub.run(act)
    _note("show", customers, submissions)
    if hub.json:
        _show_json(customers, submissions)
        return
    hidden = ("hotel_id", "phone_due")
    records = [
        {name: value for name, value in one.items() if value is not None and name not in hidden}
        for one in customers
    ]
    for record in records:
        if "consent" in record:
            record["consent"] = bool(record["consent"])
    show_records(records, json_=False)
    if not records:
        click.echo("no customer", err=True)
    _show_submissions(submissions)


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
    each guest request, the submissions, the deliveries and their states; and what else names the
    person, such as submissions that became no guest request.

    With --email or --phone, give --hotel CODE or --all-hotels, too.
    """
    query = _query(**who)
    _require_hotel(query, all_hotels)

    async def act(ctx: Context) -> tuple[list[search.Customer], Traces, dict[str, Any]]:
        customers, traces = await _find_all(ctx, query)
        return customers, traces, await export_customers(ctx.store, customers, traces)

    if output is None:
        customers, traces, document = hub.run(act)
        show_json(document)
    else:
        with new_file(output, hint="give another file with --output") as write:
            customers, traces, document = hub.run(act)
            text = json.dumps(document, indent=2, ensure_ascii=False)
            # Half of a surrogate pair is escaped, as by show_json.
            write(f"{text}\n".encode("utf-8", "backslashreplace"))
        click.echo(f"{_counted(customers, traces)} written to {output}")
    _note("export", customers, traces.submissions)


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
    personal data. A submission that names the person loses its whole text, and is rejected if it is
    in review: --dry-run lists those that are not of the person's guest requests, and `alpinehub
    inbox show ID` shows one.

    With --email or --phone, give --hotel CODE or --all-hotels, too. Data that hotel software has
    fetched stays there, and backups are not changed.
    """
    query = _query(**who)
    _require_hotel(query, all_hotels)

    async def look(ctx: Context) -> tuple[list[search.Customer], Traces, int]:
        customers, traces = await _find_all(ctx, query)
        return customers, traces, await erasure.count_waiting(ctx.store, customers)

    customers, traces, waiting = hub.run(look)
    counted = _counted(customers, traces, waiting)
    if dry_run:
        if hub.json:
            record = {
                "hotels": _hotels(customers, traces.submissions),
                "customers": len(customers),
                "requests": sum(one["requests"] for one in customers),
                "waiting": waiting,
                "submissions": len(traces.submissions),
                "submission_list": [as_record(asdict(one)) for one in traces.submissions],
                "versions": len(traces.versions),
                "mails": len(traces.mails),
            }
            show_json(record)
            return
        _show_submissions(traces.submissions)
        click.echo(f"{counted}: nothing was erased")
        return
    if not yes:
        click.confirm(f"erase {counted}? It cannot be undone", abort=True, err=True)

    async def act(ctx: Context) -> erasure.Erased:
        why = erasure.Reason(by=OPERATOR, reason=reason, force=force)
        with _progress() as progress:
            erased = await erasure.erase(ctx.store, customers, why, query, progress=progress)
        await empty_log(ctx)
        return erased

    erased = hub.run(act)
    _note("erase", customers, traces.submissions)
    text = (
        f"erased: customers {erased.customers}, guest requests {erased.requests};"
        f" also submissions {erased.submissions}, old versions {erased.versions},"
        f" mails {erased.mails}"
    )
    hub.print_result(asdict(erased), text)


def _query(
    *, email: str | None, phone: str | None, id_: int | None, hotel: str | None
) -> search.PersonQuery:
    """The person whom the options name. Raises: UsageError."""
    if sum(value is not None for value in (email, phone, id_)) != 1:
        raise click.UsageError("name the customer: one of --email, --phone and --id")
    return search.PersonQuery(email=email, phone=phone, id=id_, hotel=hotel)


def _require_hotel(query: search.PersonQuery, all_hotels: bool) -> None:
    """Raises: UsageError if the options name no hotel; a customer's id belongs to one hotel."""
    if query.hotel is not None and all_hotels:
        raise click.UsageError("--hotel and --all-hotels exclude each other")
    if query.id is None and query.hotel is None and not all_hotels:
        raise click.UsageError(
            "give --hotel CODE, or --all-hotels for all hotels that have data of the person"
        )


async def _find_all(
    ctx: Context, query: search.PersonQuery
) -> tuple[list[search.Customer], Traces]:
    """All that is stored of a person. Raises: Unusable if there is nothing."""
    with _progress() as progress:
        customers, traces = await erasure.find_all(ctx.store, query, progress=progress)
    _require_any(query, customers, traces.submissions, traces.versions, traces.mails)
    return customers, traces


def _require_any(query: search.PersonQuery, *found: Sequence[Any]) -> None:
    """Raises: Unusable if nothing was found."""
    if any(found):
        return
    hint = "search with `alpinehub customer find NAME`"
    if query.id is not None:
        raise Unusable("no such customer", hint=hint)
    text = "no such customer, and no submission names this person"
    if query.phone is not None:
        hint += "; a number needs 7 digits, and its country code if it is of another country"
    raise Unusable(text, hint=hint)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar while the store is searched, unless it is quick."""
    due = monotonic() + _SHOWN_AFTER_S
    with ProgressBar() as bar:

        def draw(what: str, share: float) -> None:
            nonlocal due
            if monotonic() >= due:
                due = monotonic() + _SHOWN_EVERY_S
                bar.draw(share, f"searching {what}")

        yield draw


def _show_json(
    customers: Sequence[search.Customer], submissions: Sequence[FoundSubmission]
) -> None:
    show_json(
        {
            "customers": [as_record(one) for one in customers],
            "submissions": [as_record(asdict(one)) for one in submissions],
        }
    )


def _show_submissions(submissions: Sequence[FoundSubmission]) -> None:
    if submissions:
        click.echo("submissions:")
        show_table([asdict(one) for one in submissions], _SUBMISSION)


def _hotels(
    customers: Sequence[search.Customer], submissions: Sequence[FoundSubmission]
) -> list[str]:
    return sorted({*(one["hotel"] for one in customers), *(one.hotel for one in submissions)})


def _note(
    what: str, customers: Sequence[search.Customer], submissions: Sequence[FoundSubmission]
) -> None:
    """Log the operator and the ids of what was found to syslog."""
    for name, ids in (
        ("customers", [one["id"] for one in customers]),
        ("submissions", [one.id for one in submissions]),
    ):
        listed = " ".join(map(str, ids[:50]))
        syslog.syslog(
            syslog.LOG_INFO,
            f"alpinehub customer {what} by {OPERATOR}: {len(ids)} {name}: {listed}",
        )


def _counted(
    customers: Sequence[search.Customer], traces: Traces, waiting: int | None = None
) -> str:
    """What was found, in a sentence."""
    requests = sum(one["requests"] for one in customers)
    waits = "" if waiting is None else f", of which {waiting} wait"
    hotels = ", ".join(_hotels(customers, traces.submissions)) or "no hotel"
    return (
        f"{_number(len(customers), 'customer')} of {hotels} with {requests} guest requests{waits};"
        f" also {_number(len(traces.submissions), 'submission')},"
        f" {_number(len(traces.versions), 'old version')}, {_number(len(traces.mails), 'mail')}"
    )


def _number(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
