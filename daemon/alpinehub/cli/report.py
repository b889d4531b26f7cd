"""`alpinehub report`: a hotel's daily report, shown and not sent."""

from __future__ import annotations

from datetime import datetime

import click

from alpinehub.cli.run import run


@click.command(
    epilog="""Example:

\b
  alpinehub report --hotel EDELW --date 2026-02-01 --format html > report.html"""
)
@click.option("--hotel", "code", required=True, help="Code of the hotel.")
@click.option(
    "--date",
    "day",
    required=True,
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="The hotel's local day.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "html", "json"]),
    default="text",
    show_default=True,
    help="What is shown.",
)
@click.pass_obj
def report(config: str | None, code: str, day: datetime, kind: str) -> None:
    """Show the daily report of a hotel. Nothing is sent; what waits is what waits now."""
    from alpinehub.report.job import read_report
    from alpinehub.report.writing import to_json, write

    figures = run(config, lambda ctx: read_report(ctx, code, day.date().isoformat()))
    if kind == "json":
        click.echo(to_json(figures))
        return
    written = write(figures)
    click.echo(written.html if kind == "html" else written.text, nl=False)
