"""The chart: a picture that decodes, markup that parses, a line of text."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from lxml import etree

from alpinehub.report.chart import HEIGHT, WIDTH, png, sparkline, svg
from alpinehub.report.figures import DayCount

WHITE, LINE = b"\xff\xff\xff", b"\xc8\xc8\xc8"


def days(*counts: int) -> list[DayCount]:
    first = date(2026, 1, 1)
    return [
        DayCount(day=first + timedelta(days=number), received=count)
        for number, count in enumerate(counts)
    ]


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The parts of a PNG, each with its checksum right."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at = 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + body),)
        yield kind, body
        at += 12 + length


def pixels(data: bytes) -> list[list[bytes]]:
    """The colours of a PNG with a palette and no filter, row by row."""
    parts = dict(chunks(data))
    assert list(parts) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert (width, height, depth, kind, rest) == (WIDTH, HEIGHT, 8, 3, [0, 0, 0])
    raw, palette = zlib.decompress(parts[b"IDAT"]), parts[b"PLTE"]
    assert len(raw) == height * (width + 1)
    rows = [raw[start : start + width + 1] for start in range(0, len(raw), width + 1)]
    assert {row[0] for row in rows} == {0}
    return [[palette[3 * one : 3 * one + 3] for one in row[1:]] for row in rows]


def heights(data: bytes, count: int) -> list[int]:
    """Of the bars, in pixels."""
    rows = pixels(data)
    middles = [(2 * number + 1) * WIDTH // (2 * count) for number in range(count)]
    return [sum(row[x] not in (WHITE, LINE) for row in rows) for x in middles]


def test_png_shows_each_day_as_high_as_it_was() -> None:
    found = heights(png(days(0, 1, 50, 100, 25)), 5)
    assert found[0] == 0
    assert found[1] == 2  # seen, however high another is
    assert found[3] == 2 * found[2] == 4 * found[4] > 100


@pytest.mark.parametrize("counts", [(), (0,), (0,) * 30, (5,), tuple(range(30))])
def test_png_decodes_whatever_there_was(counts: tuple[int, ...]) -> None:
    assert len(heights(png(days(*counts)), len(counts))) == len(counts) if counts else True
    assert len(png(days(*counts))) < 4000


def test_svg_is_markup_with_a_bar_for_each_day() -> None:
    text = svg(days(3, 0, 9), title='<Last> & "days"', date_format="%d.%m.")
    root = etree.fromstring(text)
    name = root.tag.removesuffix("svg")
    bars = root.findall(f"{name}rect")
    assert [float(bar.get("height", "")) for bar in bars] == [41, 0, 124]
    assert [bar.findtext(f"{name}title") for bar in bars] == ["01.01.: 3", "02.01.: 0", "03.01.: 9"]
    assert root.get("aria-label") == '<Last> & "days"'
    assert [one.text for one in root.findall(f"{name}text")] == ["max 9", "01.01.", "03.01."]
    assert etree.fromstring(svg([], title="", date_format="%d"))[0].tag == f"{name}path"


def test_sparkline_has_a_character_for_each_day() -> None:
    assert sparkline(days(0, 1, 4, 8)) == "·▂▅█"
    assert sparkline(days(0, 0)) == "··"
