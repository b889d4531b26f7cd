"""The last lines that a child wrote, for whoever asks why it died."""

from __future__ import annotations

from collections import deque

LINES = 20
BYTES = 4096
LINE = 1000


class Tail:
    """At most 20 lines and 4 KiB of text, lines cut at 1000 characters."""

    __slots__ = ("_lines", "_size")

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0

    def add(self, line: str) -> None:
        """One more line, without its end; the oldest ones make room."""
        line = line[:LINE]
        self._lines.append(line)
        self._size += len(line.encode(errors="replace"))
        while len(self._lines) > LINES or self._size > BYTES:
            self._size -= len(self._lines.popleft().encode(errors="replace"))

    def lines(self) -> tuple[str, ...]:
        """The oldest one first."""
        return tuple(self._lines)
