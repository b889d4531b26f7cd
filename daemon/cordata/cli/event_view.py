"""Events of the event store for people and, with --json, for programs."""

from __future__ import annotations

import json
from typing import Any

import click

from cordata.cli.view import as_record, printable, show_all, show_json, show_table
from cordata.clock import to_us
from cordata.eventstore import StoredEvent
from cordata.eventstore.search import Found

_COLUMNS = ("position", "stream", "version", "type", "created_at")


def show_events(found: Found, *, whole: bool, json_: bool) -> None:
    """Print one page, and where the next one starts."""
    if json_:
        items = [_record(event) for event in found.events]
        show_json({"items": items, "next": found.next})
        return
    if whole:
        texts = [_texts(event) for event in found.events]
        show_all(texts, json_=False)
    else:
        show_table([_texts(event) for event in found.events], _COLUMNS)
    if not found.events:
        click.echo("nothing there", err=True)
    if found.next is not None:
        click.echo(f"there is more: --after {found.next}", err=True)


def _record(event: StoredEvent) -> dict[str, Any]:
    """For JSON."""
    return as_record(_texts(event))


def _texts(event: StoredEvent) -> dict[str, Any]:
    """As rows have it."""
    return {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "type": event.type,
        "created_at": to_us(event.created_at),
        "payload": json.dumps(event.payload, ensure_ascii=False),
        "headers": json.dumps(event.headers, ensure_ascii=False),
    }


def line_of(event: StoredEvent, *, payload: bool, json_: bool) -> str:
    """One event on one line."""
    if json_:
        return json.dumps(_record(event), ensure_ascii=False)
    at = f"{event.created_at:%Y-%m-%d %H:%M:%S}Z"
    line = f"{at}  {event.position}  {event.stream} {event.version}  {event.type}"
    more = f"  {json.dumps(event.payload, ensure_ascii=False)}" if payload else ""
    return printable(line + more)
