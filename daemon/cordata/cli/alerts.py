"""`cordata alerts list|show|clear`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from cordata.cli.options import limit_option, operator

if TYPE_CHECKING:
    from cordata.store import Row, Tx

_COLUMNS = ("fingerprint", "title", "count", "pending", "last_at", "mail", "mailed_at", "place")


@click.group()
def alerts() -> None:
    """What went wrong, by kind: errors that belong together are one alert with a count.

    ALERT is the id that the list and the mails show. The journal has every single error.
    """


@alerts.command(
    "list",
    short_help="List them, the latest first.",
    epilog="""Examples:

\b
  cordata alerts list
  cordata alerts list --limit 5 --json

Exit codes: 0 done.""",
)
@limit_option
@operator
def list_(limit: int, json_: bool, directory: str | None, config: str | None, debug: bool) -> int:
    """List alerts, the latest first. Pending is how many no mail tells of yet, MAIL the state of
    the last mail of the primary about it, and MAILED when the mail server took that. Of what a
    process mailed itself at once they are empty. With an invalid configuration what is valid of it
    is used.
    """
    from cordata.cli.session import run_salvaged
    from cordata.cli.view import show_page

    async def unit(tx: Tx) -> list[Row]:
        return await tx.fetch_all("alert.list", limit=limit)

    rows = run_salvaged(config, directory, lambda ctx: ctx.store.read(unit))
    show_page([_record(row) for row in rows], None, _COLUMNS, json_=json_)
    return 0


@alerts.command(
    short_help="Show one with its text.",
    epilog="""Example: cordata alerts show 0a1b2c3d4e5f

Exit codes: 0 done, 1 there is no such alert.""",
)
@click.argument("fingerprint", metavar="ALERT")
@operator
def show(
    fingerprint: str, json_: bool, directory: str | None, config: str | None, debug: bool
) -> int:
    """Show one alert with the text of the latest of its kind."""
    from cordata.cli.session import run_salvaged
    from cordata.cli.view import show_one

    async def unit(tx: Tx) -> Row | None:
        return await tx.fetch_one("alert.show", fingerprint=fingerprint)

    row = run_salvaged(config, directory, lambda ctx: ctx.store.read(unit))
    if row is None:
        click.echo(f"error: no alert {fingerprint}; see `cordata alerts list`", err=True)
        return 1
    record = _record(row)
    text = str(record.pop("sample"))
    if json_:
        show_one(record | {"text": text}, json_=True)
        return 0
    show_one(record, json_=False)
    click.echo(f"\n{text}")
    return 0


@alerts.command(
    short_help="Forget alerts that are dealt with.",
    epilog="""Examples:

\b
  cordata alerts clear 0a1b2c3d4e5f
  cordata alerts clear --all

Exit codes: 0 done, 1 an alert that was named is not there.""",
)
@click.argument("fingerprints", metavar="[ALERT]...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Whatever there is.")
@operator
def clear(
    fingerprints: tuple[str, ...],
    all_: bool,
    json_: bool,
    directory: str | None,
    config: str | None,
    debug: bool,
) -> int:
    """Forget alerts: their counts, and what was to be mailed about them. The next one of a kind is
    its first again.
    """
    from cordata.cli.session import run
    from cordata.cli.view import show_json

    if bool(fingerprints) == all_:
        raise click.UsageError("which? ALERT... or --all")
    cleared, missing = run(
        config, directory, lambda ctx: ctx.store.run(partial(_clear, fingerprints=fingerprints))
    )
    if json_:
        show_json({"count": cleared, "missing": missing})
    else:
        click.echo(f"{cleared:,} cleared")
    for one in missing:
        click.echo(f"error: no alert {one}; see `cordata alerts list`", err=True)
    return 1 if missing else 0


async def _clear(tx: Tx, *, fingerprints: tuple[str, ...]) -> tuple[int, list[str]]:
    if not fingerprints:
        return await tx.execute("alert.clear_all"), []
    missing, cleared = [], 0
    for one in fingerprints:
        found = await tx.execute("alert.clear", fingerprint=one)
        cleared += found
        missing += [] if found else [one]
    return cleared, missing


def _record(row: Row) -> dict[str, object]:
    record: dict[str, object] = {name: row[name] for name in row.keys()}
    return record | {"urgent": bool(record["urgent"])}
