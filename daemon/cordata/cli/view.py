"""Rows and records for people and, with --json, for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

#: Longer cells of a table are cut; `show` and --json have the whole text.
_CELL = 72


def show_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def as_record(fields: Mapping[str, Any]) -> dict[str, Any]:
    """For JSON: moments in ISO 8601, UTC; payload and headers as what they hold."""
    return {name: _plain(name, value) for name, value in fields.items()}


def show_page(
    rows: Sequence[Mapping[str, Any]], following: str | None, columns: Sequence[str], *, json_: bool
) -> None:
    """Print one page of a list, and where the next one starts."""
    if json_:
        show_json({"items": [as_record(row) for row in rows], "next": following})
        return
    show_table(rows, columns)
    if not rows:
        click.echo("nothing there", err=True)
    if following is not None:
        click.echo(f"there is more: --after {following}", err=True)


def show_one(fields: Mapping[str, Any], *, json_: bool) -> None:
    """Print one record whole."""
    if json_:
        show_json(as_record(fields))
    else:
        show_record(fields)


def show_all(records: Sequence[Mapping[str, Any]], *, json_: bool) -> None:
    """Print records whole, an empty line between them."""
    if json_:
        show_json([as_record(fields) for fields in records])
        return
    for number, fields in enumerate(records):
        if number:
            click.echo()
        show_record(fields)


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows under their heads; nothing at all when there are none."""
    if not rows:
        return
    cells = [[_cut(_text(column, row[column])) for column in columns] for row in rows]
    heads = [column.removesuffix("_at").replace("_", " ").upper() for column in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def show_record(fields: Mapping[str, Any]) -> None:
    """Print one record, a line for each field; lists of records as tables, JSON indented."""
    width = max(map(len, fields))
    for name, value in fields.items():
        label = name.replace("_", " ").ljust(width)
        if isinstance(value, list):
            click.echo(f"{label}  {'' if value else '-'}".rstrip())
            show_table(value, list(value[0]) if value else [])
        elif name in ("payload", "headers"):
            click.echo(label.rstrip())
            text = json.dumps(_plain(name, value), indent=2, ensure_ascii=False)
            click.echo("\n".join(f"  {printable(line)}" for line in text.splitlines()))
        else:
            click.echo(f"{label}  {_text(name, value)}")


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [as_record(item) for item in value]
    if name in ("payload", "headers"):
        try:
            return json.loads(value)
        except ValueError:  # damaged: as it is
            return value
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        return datetime.fromtimestamp(value / 1e6, UTC).isoformat(timespec="milliseconds")
    return value


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    plain = _plain(name, value)
    moved = plain is not value and isinstance(plain, str)
    return plain.replace("+00:00", "Z") if moved else printable(str(plain))


def printable(text: str) -> str:
    """What others wrote must not move the cursor of whoever reads it."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
