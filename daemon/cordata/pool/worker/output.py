"""What a child wrote: lines for the journal, with its worker and the call that wrote them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cordata import events
from cordata.core.pool.tail import LINE, Tail
from cordata.log import fields, logger

log = logger("cordata.pool.child")

#: Of one child and second; what is more is counted, and named in the next second.
LINES_PER_S = 1000
#: A line that does not end is cut here.
_LONGEST = 16_384
_MARK = b"\x1e"
_PRIORITY = re.compile(r"<([0-7])>")
#: By the priorities of sd-daemon(3).
_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING] + [logging.INFO] * 2
_LEVELS += [logging.DEBUG]


class Line(NamedTuple):
    """One line, without its end."""

    text: str
    level: int
    #: Of the call that wrote it, as far as a mark says so; else 0.
    serial: int
    request_id: str


class Lines:
    """Cuts the bytes of one child into lines. A mark tells whose the ones after it are."""

    def __init__(self) -> None:
        self._rest = b""
        self._serial = 0
        self._request_id = ""

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that end in `data`."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield from self._take(line)
        while len(self._rest) > _LONGEST:
            cut, self._rest = self._rest[:_LONGEST], self._rest[_LONGEST:]
            yield from self._take(cut)

    def end(self) -> Iterator[Line]:
        """What has no end and will get none."""
        rest, self._rest = self._rest, b""
        yield from self._take(rest)

    def _take(self, line: bytes) -> Iterator[Line]:
        text, mark, told = line.partition(_MARK)
        if text:
            yield self._line(text.decode(errors="replace"))
        if mark:
            serial, _, request_id = told.decode(errors="replace").partition(" ")
            self._serial = int(serial) if serial.isascii() and serial.isdigit() else 0
            self._request_id = request_id[:200]

    def _line(self, text: str) -> Line:
        level, found = logging.INFO, _PRIORITY.match(text)
        if found:
            level, text = _LEVELS[int(found[1])], text[found.end() :]
        return Line(text[:LINE], level, self._serial, self._request_id)


class Output:
    """The output of one child, on its way to the journal. The last lines are kept."""

    def __init__(
        self,
        worker: str,
        pid: int,
        *,
        in_hand: Callable[[], int],
        call_id: Callable[[int], str],
    ) -> None:
        """`in_hand` gives the serial of the call in hand, or 0; `call_id` the journal's CALL_ID."""
        self.tail = Tail()
        self._worker, self._pid = worker, pid
        self._in_hand, self._call_id = in_hand, call_id
        self._lines = Lines()
        self._second = 0
        self._count = 0

    def feed(self, data: bytes, now: float) -> None:
        """It wrote this."""
        for line in self._lines.feed(data):
            self._pass_on(line, now)

    def end(self, now: float) -> None:
        """It writes no more."""
        for line in self._lines.end():
            self._pass_on(line, now)
        self._say_left_out()

    def _pass_on(self, line: Line, now: float) -> None:
        # One without a mark was not printed by Python, or by no call.
        serial = line.serial or self._in_hand()
        self.tail.add(line.text, serial)
        if int(now) != self._second:
            self._say_left_out()
            self._second, self._count = int(now), 0
        self._count += 1
        if self._count <= LINES_PER_S:
            extra: dict[str, object] = {"call_id": self._call_id(serial)} if serial else {}
            if line.request_id:
                extra["request_id"] = line.request_id
            self._log(line.level, line.text, extra)

    def _say_left_out(self) -> None:
        left_out = self._count - LINES_PER_S
        if left_out > 0:
            self._log(logging.WARNING, f"{left_out} lines of child {self._pid} are left out", {})

    def _log(self, level: int, text: str, extra: dict[str, object]) -> None:
        told = fields(events.POOL_CHILD_OUTPUT, worker=self._worker, child_pid=self._pid, **extra)
        log.log(level, "%s", text, extra=told)
