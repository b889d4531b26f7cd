"""Thirty days as a chart: SVG, PNG for mail clients without SVG, block characters for text."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from datetime import date
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpinehub.report.figures import DayCount

WIDTH, HEIGHT = 600, 160
#: Space above the bars for the highest count, and below for the dates.
_TOP, _BOTTOM = 18, 18
_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR, _LAST, _LINE, _TEXT = "#5b8db8", "#1f4e79", "#c8c8c8", "#666666"
_COLOURS = ("#ffffff", _BAR, _LAST, _LINE)


def svg(days: Sequence[DayCount], *, title: str, date_format: str) -> str:
    """The chart as SVG markup for HTML. All text is escaped."""
    parts = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="100%" role="img" aria-label="{escape(title)}">'
    ]
    floor = HEIGHT - _BOTTOM
    parts.append(f'<path d="M0 {floor}.5H{WIDTH}" stroke="{_LINE}"/>')
    for day, (left, top, right) in zip(days, _bars(days), strict=True):
        colour = _LAST if day is days[-1] else _BAR
        parts.append(
            f'<rect x="{left}" y="{top}" width="{right - left}" height="{floor - top}"'
            f' fill="{colour}"><title>{_label(day.day, date_format)}: {day.received}</title></rect>'
        )
    if days:
        style = f'font-family="sans-serif" font-size="11" fill="{_TEXT}"'
        first, last = (_label(one.day, date_format) for one in (days[0], days[-1]))
        parts.append(f'<text x="0" y="12" {style}>max {_highest(days)}</text>')
        parts.append(f'<text x="0" y="{HEIGHT - 4}" {style}>{first}</text>')
        parts.append(f'<text x="{WIDTH}" y="{HEIGHT - 4}" {style} text-anchor="end">{last}</text>')
    return "".join(parts) + "</svg>"


def png(days: Sequence[DayCount]) -> bytes:
    """The bars alone as a PNG with a palette (W3C PNG, third edition): about a kilobyte."""
    floor = HEIGHT - _BOTTOM
    bars = list(_bars(days))
    rows = []
    for y in range(HEIGHT):
        row = bytearray(WIDTH)
        if y == floor:
            row = bytearray([3]) * WIDTH
        for number, (left, top, right) in enumerate(bars):
            if top <= y < floor:
                colour = 2 if number == len(bars) - 1 else 1
                row[left:right] = bytes([colour]) * (right - left)
        rows.append(b"\0" + row)  # no filter: runs of one colour are short enough
    palette = b"".join(bytes.fromhex(colour[1:]) for colour in _COLOURS)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 3, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", palette),
            _chunk(b"IDAT", zlib.compress(b"".join(rows), 9)),
            _chunk(b"IEND", b""),
        )
    )


def sparkline(days: Sequence[DayCount]) -> str:
    """A character for each day; a dot for a day with 0."""
    highest = _highest(days)
    steps = len(_BLOCKS) - 1
    return "".join(
        _BLOCKS[round(steps * day.received / highest)] if day.received else "·" for day in days
    )


def _highest(days: Sequence[DayCount]) -> int:
    return max((day.received for day in days), default=0)


def _bars(days: Sequence[DayCount]) -> list[tuple[int, int, int]]:
    """(left, top, right) of each day; a bar above 0 is at least two pixels high."""
    highest = max(_highest(days), 1)
    room = HEIGHT - _TOP - _BOTTOM
    found = []
    for number, day in enumerate(days):
        left = number * WIDTH // len(days)
        right = (number + 1) * WIDTH // len(days) - 2
        height = max(round(room * day.received / highest), 2) if day.received else 0
        found.append((left, HEIGHT - _BOTTOM - height, right))
    return found


def _label(day: date, date_format: str) -> str:
    return escape(day.strftime(date_format))


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)
