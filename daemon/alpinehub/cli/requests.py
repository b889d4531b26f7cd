"""`alpinehub requests list|show|resend|cancel`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, get_args

import click

from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.cli.duration import since as moment
from alpinehub.cli.run import OPERATOR, as_json, printable, run, show, show_document, show_table
from alpinehub.requests import actions, listing
from alpinehub.requests.listing import Wanted

_COLUMNS = ("created_at", "id", "hotel", "source", "status", "version", "accounts")


@click.group()
def requests() -> None:
    """Guest requests: what became of each, and to send one again."""


@requests.command(
    "list",
    short_help="List them, the newest first.",
    epilog="""Examples:

\b
  alpinehub requests list --hotel EDELW
  alpinehub requests list --state undeliverable --since 2d
  alpinehub requests list --account edelweiss-pms --state rejected --since 2027-01-01 --json""",
)
@click.option("--hotel", metavar="CODE", help="Of one hotel.")
@click.option(
    "--status",
    type=click.Choice(("request", "reservation", "cancelled")),
    help="What the newest version is.",
)
@click.option(
    "--state", type=click.Choice(get_args(listing.State)),
    help="What became of it for an account; open: waiting, sent or undeliverable.",
)  # fmt: skip
@click.option("--account", metavar="NAME", help="With --state: for this account.")
@click.option(
    "--since", callback=moment, metavar="TIME", help="Made then or later: 2h, 7d, a date."
)
@click.option("--until", callback=moment, metavar="TIME", help="Made before.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most."
)
@click.option("--after", metavar="ID", help="Only what comes behind it: the next page.")
@as_json
@click.pass_obj
def list_(
    config: str | None,
    /,
    *,
    since: int,
    until: int,
    json_: bool,
    **chosen: Any,
) -> None:
    """List guest requests, the newest first, without anything that a guest wrote.

    ACCOUNTS tells what became of the newest version for each account: waiting (not fetched yet),
    sent (fetched, not acknowledged), undeliverable (their version of AlpineBits cannot carry it),
    acknowledged, rejected, or cancelled by an operator. Not sent: disabled (the account or the
    hotel is disabled), revoked (the account no longer reads the hotel), unneeded (a cancellation of
    a request that the account never got).
    """
    wanted = Wanted(since_us=since, until_us=until or None, **chosen)
    page = run(config, lambda ctx: listing.list_requests(ctx.store, wanted))
    if json_:
        items = [_iso(item) for item in page.items]
        click.echo(json.dumps({"items": items, "next": page.next}, indent=2))
        return
    rows = [{**item, "accounts": _summary(item["accounts"])} for item in page.items]
    if rows:
        show_table(rows, _COLUMNS, False)
    elif page.next is None:
        click.echo("nothing there", err=True)
    if page.next is not None:
        seen = f"{page.looked_at} were looked at; " if page.looked_at else ""
        click.echo(f"{seen}there is more: --after {page.next}", err=True)


@requests.command(
    "show",
    short_help="Show one and its trail.",
    epilog="""Examples:

\b
  alpinehub requests show 019f1c434b00a8f1651ad6e57d014363
  alpinehub requests show 019f1c434b00a8f1651ad6e57d014363 --xml 2024-10""",
)
@click.argument("id_", metavar="ID")
@click.option(
    "--xml", type=click.Choice([*PROTOCOLS]), help="As hotel software of this version gets it."
)
@as_json
@click.pass_obj
def show_request(config: str | None, id_: str, xml: str | None, json_: bool) -> None:
    """Show a guest request with the guest's data, and everything that became of it."""
    if xml is not None:
        from alpinehub.requests.rendering import render_request

        protocol = PROTOCOLS[xml]
        made = run(config, lambda ctx: render_request(ctx.store, id_, protocol))
        show_document(made)
        return
    found = run(config, lambda ctx: listing.find_request(ctx.store, id_))
    if json_:
        click.echo(json.dumps(_iso(found), indent=2))
        return
    lists = ("data", "versions", "accounts", "inbox", "history")
    _show_fields({name: value for name, value in _iso(found).items() if name not in lists})
    _show_fields(found["data"], "guest: ")
    states = ("account", "version", "state", "sent_count", "last_sent_at", "acked_at", "client_id")
    for head, columns in (
        ("accounts", (*states, "undeliverable_text", "rejected_text")),
        ("history", ("at", "event", "version", "account", "detail")),
    ):
        click.echo(f"\n{head}:")
        rows = [{**_iso(row), "detail": _detail(row.get("detail", {}))} for row in found[head]]
        show_table([_printable(row) for row in rows], columns, False)


@requests.command(
    epilog="""Examples:

\b
  alpinehub requests resend 019f1c434b00a8f1651ad6e57d014363
  alpinehub requests resend 019f1c434b00a8f1651ad6e57d014363 --account edelweiss-pms"""
)
@click.argument("id_", metavar="ID")
@click.option("--account", metavar="NAME", help="For one account.  [default: all of the hotel]")
@as_json
@click.pass_obj
def resend(config: str | None, id_: str, account: str | None, json_: bool) -> None:
    """Let hotel software get a guest request again with its next poll.

    For accounts who acknowledged it, refused it, or from whose list it was taken. A cancellation
    goes only to accounts who got the request, and a request that was erased to nobody.
    """
    done = run(config, lambda ctx: actions.resend(ctx.store, id_, account=account, by=OPERATOR))
    names = ", ".join(done.accounts)
    sentence = (
        f"version {done.version} waits again for: {names}"
        if names
        else "it waits already, or cancels what nobody got"
    )
    show({"id": id_, "version": done.version, "accounts": list(done.accounts)}, sentence, json_)


@requests.command(
    short_help="Take one from the list of what waits.",
    epilog="""Examples:

\b
  alpinehub requests cancel 019f1c434b00a8f1651ad6e57d014363 --account old-pms
  alpinehub requests cancel 019f1c434b00a8f1651ad6e57d014363 --as-cancellation""",
)
@click.argument("id_", metavar="ID")
@click.option("--account", metavar="NAME", help="For one account.  [default: all of the hotel]")
@click.option(
    "--as-cancellation", is_flag=True,
    help="Send a cancellation to all accounts who got it: it may be in their software already.",
)  # fmt: skip
@as_json
@click.pass_obj
def cancel(
    config: str | None, id_: str, account: str | None, as_cancellation: bool, json_: bool
) -> None:
    """Take a guest request from the list of what waits: hotel software does not get it, nor does
    software that comes later.

    Nothing is deleted; `resend` brings it back.
    """
    if as_cancellation and account is not None:
        raise click.UsageError("a cancellation goes to all accounts: leave out --account")
    if as_cancellation:
        done = run(config, lambda ctx: actions.cancel_at_hotel(ctx.store, id_, by=OPERATOR))
        sentence = f"its cancellation waits for: {', '.join(done.accounts) or 'nobody'}"
    else:
        done = run(config, lambda ctx: actions.cancel(ctx.store, id_, account=account, by=OPERATOR))
        names = ", ".join(done.accounts)
        sentence = f"it does not wait any more for: {names}" if names else "it waits for nobody"
    show({"id": id_, "version": done.version, "accounts": list(done.accounts)}, sentence, json_)


def _summary(accounts: list[dict[str, Any]]) -> str | None:
    told = (
        f"{one['account']}: {one['state']}"
        + (f" ({one['undeliverable_code']})" if one["undeliverable_code"] else "")
        for one in accounts
    )
    return ", ".join(told) or None


def _iso(value: Any, name: str = "") -> Any:
    """Moments as ISO 8601, in all depths."""
    if isinstance(value, dict):
        return {key: _iso(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_iso(inner) for inner in value]
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        return datetime.fromtimestamp(value // 1_000_000, UTC).isoformat()
    return value


def _detail(detail: dict[str, Any]) -> str | None:
    return ", ".join(f"{name}: {said}" for name, said in detail.items()) or None


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    return {k: printable(v) if isinstance(v, str) else v for k, v in row.items()}


def _show_fields(fields: dict[str, Any], before: str = "") -> None:
    for name, value in fields.items():
        if value not in (None, ""):
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            click.echo(f"{before}{name}: {printable(said)}")
