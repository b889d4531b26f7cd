"""`alpinehub hotel add|list|disable|enable`."""

from __future__ import annotations

import click

from alpinehub import hotels
from alpinehub.cli.run import as_json, run, show, show_table


@click.group()
def hotel() -> None:
    """Hotels."""


@hotel.command(
    epilog="""Example:

\b
  alpinehub hotel add EDELW --name "Hotel Edelweiss" --time-zone Europe/Vienna --region AT"""
)
@click.argument("code")
@click.option("--name", required=True, help="As hotel software shows it.")
@click.option("--time-zone", default="Europe/Rome", show_default=True, help="The hotel's day.")
@click.option("--language", default="de", show_default=True, help="ISO 639-1, lower case.")
@click.option("--region", default="IT", show_default=True, help="Country of its telephone numbers.")
@click.option("--report-email", metavar="ADDRESSES", help="Who gets the daily report.")
@as_json
@click.pass_obj
def add(
    config: str | None,
    code: str,
    name: str,
    time_zone: str,
    language: str,
    region: str,
    report_email: str | None,
    json_: bool,
) -> None:
    """Add a hotel. CODE is its AlpineBits HotelCode."""
    new = hotels.NewHotel(
        code=code,
        name=name,
        time_zone=time_zone,
        language=language,
        region=region,
        report_email=report_email,
    )
    hotel_id = run(config, lambda ctx: hotels.add_hotel(ctx.store, new))
    show({"id": hotel_id, "code": code}, f"hotel {code} added", json_)


@hotel.command("list")
@as_json
@click.pass_obj
def list_(config: str | None, json_: bool) -> None:
    """List all hotels."""
    rows = run(config, lambda ctx: hotels.list_hotels(ctx.store))
    columns = ("code", "name", "time_zone", "language", "region", "users", "sources")
    show_table(rows, (*columns, "report_email", "disabled_at"), json_)


@hotel.command()
@click.argument("code")
@as_json
@click.pass_obj
def disable(config: str | None, code: str, json_: bool) -> None:
    """Disable a hotel: its sources are refused, its users do not find it. Nothing is deleted."""
    run(config, lambda ctx: hotels.set_hotel_disabled(ctx.store, code, True))
    show({"code": code, "disabled": True}, f"hotel {code} disabled", json_)


@hotel.command()
@click.argument("code")
@as_json
@click.pass_obj
def enable(config: str | None, code: str, json_: bool) -> None:
    """Enable a disabled hotel."""
    run(config, lambda ctx: hotels.set_hotel_disabled(ctx.store, code, False))
    show({"code": code, "disabled": False}, f"hotel {code} enabled", json_)
