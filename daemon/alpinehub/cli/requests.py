"""`alpinehub requests list|show|resend|cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import click

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.cli.session import OPERATOR, Hub, hub_options, show_document
from alpinehub.cli.session import since as moment
from alpinehub.requests import actions, listing
from alpinehub.requests.listing import RequestFilter
from cordata.terminal import Group, limit_option, show_page, show_record, show_table

_COLUMNS = ("created_at", "id", "hotel", "source", "status", "version", "accounts")


@click.group(cls=Group)
def requests() -> None:
    """Guest requests: their state and history; send one again."""


@requests.command(
    "list",
    examples="""
        alpinehub requests list --hotel EDELW
        alpinehub requests list --state undeliverable --since 2d
        alpinehub requests list --account edelweiss-pms --state rejected --since 2027-01-01 --json
    """,
)
@click.option("--hotel", metavar="CODE", help="Of this hotel only.")
@click.option(
    "--status",
    type=click.Choice(("request", "reservation", "cancelled")),
    help="Status of the newest version.",
)
@click.option(
    "--state", type=click.Choice(get_args(listing.State)),
    help="State of the delivery to an account; open: waiting, sent or undeliverable.",
)  # fmt: skip
@click.option("--account", metavar="NAME", help="With --state: for this account.")
@click.option(
    "--since", callback=moment, metavar="TIME", help="Created then or later: 2h, 7d, a date."
)
@click.option("--until", callback=moment, metavar="TIME", help="Created before then.")
@limit_option
@click.option("--after", metavar="ID", help="Continue after this request: the next page.")
@hub_options
def list_(hub: Hub, /, *, since: int, until: int, **chosen: Any) -> None:
    """List guest requests, the newest first, without the guests' data.

    ACCOUNTS shows the delivery of the newest version to each account: waiting (not fetched yet),
    sent (fetched, not acknowledged), undeliverable (the account's AlpineBits version cannot carry
    it), acknowledged, rejected, or cancelled by an operator. Not sent: disabled (the account or the
    hotel is disabled), revoked (the account no longer reads the hotel), unneeded (a cancellation of
    a request that the account never received).
    """
    wanted = RequestFilter(since_us=since, until_us=until or None, **chosen)
    page = hub.run(lambda ctx: listing.list_requests(ctx.store, wanted))
    rows: Sequence[dict[str, Any]] = page.items
    if not hub.json:
        rows = [{**item, "accounts": _summary(item["accounts"])} for item in rows]
        if page.next is not None and page.examined:
            click.echo(f"{page.examined} guest requests examined", err=True)
    if rows or hub.json or page.next is None:
        show_page(rows, _COLUMNS, next=page.next, json_=hub.json)
    else:
        click.echo(f"there is more: --after {page.next}", err=True)


@requests.command(
    "show",
    short_help="Show a guest request and its history.",
    examples="""
        alpinehub requests show 019f1c434b00a8f1651ad6e57d014363
        alpinehub requests show 019f1c434b00a8f1651ad6e57d014363 --xml 2024-10
    """,
)
@click.argument("id_", metavar="ID")
@click.option(
    "--xml", type=click.Choice([*PROTOCOLS]), help="As sent to hotel software of this version."
)
@hub_options
def show_request(hub: Hub, id_: str, xml: str | None) -> None:
    """Show a guest request: the guest's data, the deliveries and the history."""
    if xml is not None:
        protocol = PROTOCOLS[xml]
        made = hub.run(lambda ctx: listing.render_request(ctx.store, id_, protocol))
        show_document(made)
        return
    found = hub.run(lambda ctx: listing.find_request(ctx.store, id_))
    if hub.json:
        show_record(found, json_=True)
        return
    tables = ("data", "versions", "accounts", "inbox", "history")
    show_record({name: value for name, value in found.items() if name not in tables}, json_=False)
    click.echo("\nguest:")
    show_record({k: v for k, v in found["data"].items() if v not in (None, "")}, json_=False)
    states = ("account", "version", "state", "sent_at", "polled_at", "acked_at", "client_id")
    click.echo("\naccounts:")
    show_table(found["accounts"], (*states, "undeliverable_text", "rejected_text"))
    click.echo("\nhistory:")
    show_table(found["history"], ("at", "event", "version", "account", "detail"))


@requests.command(
    examples="""
        alpinehub requests resend 019f1c434b00a8f1651ad6e57d014363
        alpinehub requests resend 019f1c434b00a8f1651ad6e57d014363 --account edelweiss-pms
    """,
)
@click.argument("id_", metavar="ID")
@click.option("--account", metavar="NAME", help="For one account.  [default: all of the hotel]")
@hub_options
def resend(hub: Hub, id_: str, account: str | None) -> None:
    """Deliver a guest request again, with the next poll.

    It goes to accounts that acknowledged or rejected it, or for which it was cancelled. A
    cancellation goes only to accounts that received the request; an erased request goes to none.
    """
    done = hub.run(lambda ctx: actions.resend(ctx.store, id_, account=account, by=OPERATOR))
    names = ", ".join(done.accounts)
    sentence = (
        f"version {done.version} waits again for: {names}"
        if names
        else "it waits already, or it cancels a request that no account received"
    )
    hub.print_result(
        {"id": id_, "version": done.version, "accounts": list(done.accounts)}, sentence
    )


@requests.command(
    short_help="Stop the delivery of a guest request.",
    examples="""
        alpinehub requests cancel 019f1c434b00a8f1651ad6e57d014363 --account old-pms
        alpinehub requests cancel 019f1c434b00a8f1651ad6e57d014363 --as-cancellation
    """,
)
@click.argument("id_", metavar="ID")
@click.option("--account", metavar="NAME", help="For one account.  [default: all of the hotel]")
@click.option(
    "--as-cancellation", is_flag=True,
    help="Send a cancellation to all accounts that received it: their software may hold it.",
)  # fmt: skip
@hub_options
def cancel(hub: Hub, id_: str, account: str | None, as_cancellation: bool) -> None:
    """Stop the delivery of a guest request: it is sent neither to the accounts of today nor to
    those that are added later.

    Nothing is deleted; `resend` delivers it again.
    """
    if as_cancellation and account is not None:
        raise click.UsageError("a cancellation goes to all accounts: leave out --account")
    if as_cancellation:
        done = hub.run(lambda ctx: actions.cancel_at_hotel(ctx.store, id_, by=OPERATOR))
        sentence = f"its cancellation waits for: {', '.join(done.accounts) or 'no account'}"
    else:
        done = hub.run(lambda ctx: actions.cancel(ctx.store, id_, account=account, by=OPERATOR))
        names = ", ".join(done.accounts)
        sentence = f"it no longer waits for: {names}" if names else "it waits for no account"
    hub.print_result(
        {"id": id_, "version": done.version, "accounts": list(done.accounts)}, sentence
    )


def _summary(accounts: list[dict[str, Any]]) -> str | None:
    counts = (
        f"{one['account']}: {one['state']}"
        + (f" ({one['undeliverable_code']})" if one["undeliverable_code"] else "")
        for one in accounts
    )
    return ", ".join(counts) or None
