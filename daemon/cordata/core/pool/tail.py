"""The last lines that a child wrote in its call, for whoever asks why it died."""

from __future__ import annotations

from collections import deque

LINES = 20
BYTES = 4096
LINE = 1000


class Tail:
    """At most 20 lines and 4 KiB of text, lines cut at 1000 characters; all of one call.

    They are told to the caller, and what a call of somebody else printed is none of his business.
    """

    __slots__ = ("_lines", "_serial", "_size")

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._serial = 0

    def add(self, line: str, serial: int) -> None:
        """One more line, without its end, of this call; the oldest ones make room."""
        if serial != self._serial:
            self._lines.clear()
            self._serial, self._size = serial, 0
        line = line[:LINE]
        self._lines.append(line)
        self._size += len(line.encode(errors="replace"))
        while len(self._lines) > LINES or self._size > BYTES:
            self._size -= len(self._lines.popleft().encode(errors="replace"))

    def lines(self, serial: int) -> tuple[str, ...]:
        """Those of a call, the oldest one first."""
        return tuple(self._lines) if serial == self._serial else ()
