"""Numbers that a person, a link or a page's end names: positions of events and ids of rows."""

from __future__ import annotations


def parse_number(text: str) -> int | None:
    """A number within the 63 bits that the databases' integers have; None: the text is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
