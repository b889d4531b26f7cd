"""Lists and records: one mapping per row, printed as a table or as JSON.

An int in a field named `at`, `..._at` or `..._until` is a time in microseconds since the epoch;
`payload` and `headers` contain JSON as text. A float has three decimals at most; in JSON only that
of a field named `..._s` or `..._ms`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Without a terminal, lines are never wrapped.
_NO_WRAP_WIDTH = 1_000_000


def show_json(value: object, *, one_line: bool = False) -> None:
    """Print a JSON document. `one_line`: on one line, because others follow.

    Half of a surrogate pair, which UTF-8 cannot encode, is escaped.
    """
    text = json.dumps(value, indent=None if one_line else 2, ensure_ascii=False)
    click.echo(text.encode("utf-8", "backslashreplace").decode())


def as_record(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A row for JSON: times in ISO 8601, UTC; payload and headers parsed."""
    return {name: _plain(name, value) for name, value in fields.items()}


def show_page(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    next: object = None,
    paged: bool = True,
    whole: bool = False,
    json_: bool,
) -> None:
    """Print one page of a list, and `next`, the --after of the next page, if there is one.

    `paged`: whether `next` tells if there is more; False for a list that is cut without --after,
    which has no "next" in JSON. `whole`: print all fields of each row, not only `columns`; JSON
    always has all.
    """
    if json_:
        page: dict[str, object] = {"items": [as_record(row) for row in rows]}
        if paged:
            page["next"] = next
        show_json(page)
        return
    if whole:
        show_records(rows, json_=False)
    else:
        show_table(rows, columns)
    if not rows:
        click.echo("nothing found", err=True)
    if next is not None:
        click.echo(f"there is more: --after {next}", err=True)


def show_records(records: Sequence[Mapping[str, Any]], *, json_: bool) -> None:
    """Print all fields of records, with an empty line between records; or a JSON array."""
    if json_:
        show_json([as_record(fields) for fields in records])
        return
    for number, fields in enumerate(records):
        if number:
            click.echo()
        show_record(fields, json_=False)


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as a table, with its heads even if there are no rows."""
    # Ids and numbers can be copied from a narrow terminal in one piece.
    whole, right = {0}, set()
    for number, column in enumerate(columns):
        values = [row[column] for row in rows if row[column] is not None]
        if values and all(type(value) in (int, float) for value in values):
            whole.add(number)
            if not _is_moment(column, values[0]):
                right.add(number)
    heads = [column.removesuffix("_at").replace("_", " ").upper() for column in columns]
    texts = ([_text(column, row[column]) for column in columns] for row in rows)
    show_drawing(draw_table(heads, texts, whole=whole, right=right))


def draw_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: Collection[int],
    right: Collection[int],
) -> Table:
    """A table of printable text; `whole`: columns that are not wrapped, `right`: aligned there."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, head in enumerate(heads):
        justify: Literal["left", "right"] = "right" if number in right else "left"
        table.add_column(head, justify=justify, overflow="fold", no_wrap=number in whole)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def show_record(fields: Mapping[str, Any], *, json_: bool) -> None:
    """Print one record: a line for each field, nested records as tables, JSON indented."""
    if json_:
        show_json(as_record(fields))
        return
    from rich.table import Table
    from rich.text import Text

    width = max(map(len, fields))

    def grid() -> Table:
        made = Table.grid(padding=(0, 2, 0, 0))
        made.add_column(no_wrap=True, min_width=width, style="bold")
        made.add_column(overflow="fold")
        return made

    lines = grid()
    for name, value in fields.items():
        label = name.replace("_", " ")
        if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            show_drawing(lines)
            lines = grid()
            click.echo(label)
            show_table(value, list(value[0]))
        elif name in ("payload", "headers"):
            text = json.dumps(_plain(name, value), indent=2, ensure_ascii=False)
            show_drawing(lines)
            lines = grid()
            click.echo(label)
            click.echo("\n".join(f"  {printable(line)}" for line in text.splitlines()))
        else:
            lines.add_row(label, Text(_text(name, value) or "-"))
    show_drawing(lines)


def printable(text: str) -> str:
    """The text with control characters escaped, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def show_drawing(drawing: RenderableType) -> None:
    """Print at the width of the terminal; without a terminal, as plain text without wrapping."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(drawing)
        return
    console = Console(width=_NO_WRAP_WIDTH, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(drawing)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    if text:
        click.echo(text)


def _is_moment(name: str, value: object) -> bool:
    return isinstance(value, int) and (name == "at" or name.endswith(("_at", "_until")))


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, float) and name.endswith(("_s", "_ms")):  # durations and rates
        return round(value, 3)
    if isinstance(value, list | tuple):
        return [_plain("", item) for item in value]
    if isinstance(value, Mapping):
        return as_record(value)
    if name in ("payload", "headers") and isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:  # damaged: show it as it is
            return value
    if _is_moment(name, value):
        return datetime.fromtimestamp(value / 1e6, UTC).isoformat(timespec="milliseconds")
    return value


def _text(name: str, value: Any) -> str:
    """One field as text: "-" if empty, several values separated by commas."""
    if value is None or value == [] or value == ():
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_moment(name, value):
        return str(_plain(name, value)).replace("+00:00", "Z")
    if isinstance(value, list | tuple):
        return ", ".join(_text("", item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(key, said)}" for key, said in value.items()) or "-"
    if isinstance(value, float):
        return str(round(value, 3))
    return printable(str(value))
