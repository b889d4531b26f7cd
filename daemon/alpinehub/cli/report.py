"""`alpinehub report`: a hotel's daily report, or that of all hotels, shown and not sent."""

from __future__ import annotations

from datetime import datetime

import click

from alpinehub.cli.session import Hub, with_hub
from alpinehub.report.figures import Figures
from alpinehub.report.job import read_all, read_report
from alpinehub.report.portfolio import Portfolio, write_portfolio
from alpinehub.report.writing import to_json, write
from cordata.terminal import Command


@click.command(
    cls=Command,
    examples="""
        alpinehub report --hotel EDELW
        alpinehub report --hotel EDELW --date 2026-02-01 --format html > report.html
        alpinehub report --portfolio --date 2026-02-01
    """,
)
@click.option("--hotel", "code", help="Code of the hotel.")
@click.option("--portfolio", is_flag=True, help="The summary of all hotels.")
@click.option(
    "--date",
    "day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="Day in the hotel's time zone; of the summary in [alpinehub] portfolio_zone.  [default:"
    " today]",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "html", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@with_hub
def report(hub: Hub, code: str | None, portfolio: bool, day: datetime | None, kind: str) -> None:
    """Show the daily report of a hotel, or of all hotels. Nothing is sent. Waiting requests are
    those that wait now, not at the end of that day.

    Duplicates are submissions with nothing new, and requests of the same guest for the same days
    within 30 days, for example by another form. In JSON, times are microseconds since the epoch.
    """
    if (code is None) != portfolio:
        raise click.UsageError("give either --hotel CODE or --portfolio")
    on = day.date().isoformat() if day is not None else None
    found: Figures | Portfolio
    if code is None:
        found = portfolio_found = hub.run(lambda ctx: read_all(ctx, on))
        written = write_portfolio(portfolio_found)
    else:
        found = figures = hub.run(lambda ctx: read_report(ctx, code, on))
        written = write(figures)
    if kind == "json":
        click.echo(to_json(found))
    else:
        click.echo(written.html if kind == "html" else written.text, nl=False)
