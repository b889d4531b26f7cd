"""Copies the output of a child from a pipe to the journal, each line with the id of its call. A log
record of several lines, such as one with an exception, is one record of the worker, too.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cordata import events
from cordata.log import fields, logger
from cordata.pool.shared.protocol import OUTPUT_BREAK, OUTPUT_MARK
from cordata.trace import trace_of

log = logger("cordata.pool.child")

#: Of one child; further ones are counted, and the next second begins with a line that says so.
LINES_PER_S = 1000
#: Bytes after which a line without an end is cut; its rest keeps its level.
_LONGEST = 16_384
#: Limits of the last lines that a caller gets when the child of its call died.
TAIL_LINES, TAIL_BYTES, LINE = 20, 4096, 1000
_CALL_ID = re.compile(r"[0-9a-f]{1,16}-[0-9]{1,19}")
_PRIORITY = re.compile(r"<([0-7])>")
#: By the priorities of sd-daemon(3).
_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING] + [logging.INFO] * 2
_LEVELS += [logging.DEBUG]


class Line(NamedTuple):
    """One line without its end, or one log record."""

    text: str
    level: int
    #: CALL_ID of the call that wrote it, if a mark says so; else "".
    call_id: str
    request_id: str
    traceparent: str = ""
    #: Further lines of a log record: those of its exception.
    trail: str = ""


class WorkerOutput:
    """Logs the output of one child; `tail` has the last lines."""

    def __init__(self, worker: str, pid: int, *, running: Callable[[], str]) -> None:
        """`running` returns the CALL_ID of the running call, or ""."""
        self.tail = Tail()
        self._worker, self._pid = worker, pid
        self._running = running
        self._lines = LineCutter()
        self._second = 0
        #: Lines of this second that were logged, and that were not.
        self._count = self._left_out = 0

    def feed(self, data: bytes, now: float) -> None:
        """Log what the child wrote."""
        for line in self._lines.feed(data):
            self._pass_on(line, now)

    def end(self, now: float) -> None:
        """Log the rest: the child writes no more."""
        for line in self._lines.end():
            self._pass_on(line, now)
        self._log_left_out()

    def _pass_on(self, line: Line, now: float) -> None:
        # Without a mark: not printed by Python, or not by a call.
        id = line.call_id or self._running()
        lines = [line.text, *(line.trail.split("\n") if line.trail else ())]
        for text in lines:
            self.tail.add(text, id)
        if int(now) != self._second:
            self._log_left_out()
            self._second, self._count = int(now), 0
        if self._count >= LINES_PER_S:
            self._left_out += len(lines)
            return
        self._count += len(lines)
        extra: dict[str, object] = {"call_id": id} if id else {}
        if line.request_id:
            extra["request_id"] = line.request_id
        if line.request_id or line.traceparent:
            trace = trace_of(line.request_id, line.traceparent, (id,))
            extra.update(trace.log_fields())
        self._log(line.level, line.text, extra, line.trail)

    def _log_left_out(self) -> None:
        if self._left_out:
            text = f"{self._left_out} lines of child {self._pid} were left out"
            self._log(logging.WARNING, text, {})
            self._left_out = 0

    def _log(self, level: int, text: str, extra: dict[str, object], trail: str = "") -> None:
        more = fields(events.POOL_CHILD_OUTPUT, worker=self._worker, child_pid=self._pid, **extra)
        log.log(level, "%s", text, extra=more | {"child_trail": trail})


class LineCutter:
    """Cuts the bytes of one child into lines. A mark names the call that wrote the next lines."""

    def __init__(self) -> None:
        self._rest = b""
        self._call_id = ""
        self._request_id = self._traceparent = ""

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that end in `data`."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield from self._take(line)
        while len(self._rest) > _LONGEST:
            cut, rest = self._rest[:_LONGEST], self._rest[_LONGEST:]
            yield from self._take(cut)
            found = _PRIORITY.match(cut[:3].decode(errors="replace"))
            self._rest = (found[0].encode() if found else b"") + rest

    def end(self) -> Iterator[Line]:
        """The last line, if it has no line end."""
        rest, self._rest = self._rest, b""
        yield from self._take(rest)

    def _take(self, line: bytes) -> Iterator[Line]:
        text, mark, ids = line.partition(OUTPUT_MARK.encode())
        if text:
            yield self._line(text.decode(errors="replace"))
        if mark:
            id, _, cause = ids.decode(errors="replace").partition(" ")
            traceparent, _, request_id = cause.partition(" ")
            self._call_id = id if _CALL_ID.fullmatch(id) else ""
            self._request_id, self._traceparent = request_id[:200], traceparent[:200]

    def _line(self, text: str) -> Line:
        level, found = logging.INFO, _PRIORITY.match(text)
        if found:
            level, text = _LEVELS[int(found[1])], text[found.end() :]
        text, *more = (line[:LINE] for line in text.split(OUTPUT_BREAK))
        ids = self._call_id, self._request_id, self._traceparent
        return Line(text, level, *ids, trail="\n".join(more))


class Tail:
    """At most 20 lines and 4 KiB of text, lines cut at 1000 characters; all of one call.

    So the caller never gets what a call of another client printed.
    """

    __slots__ = ("_call_id", "_lines", "_size")

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._call_id = ""

    def add(self, line: str, call_id: str) -> None:
        """Add a line of this call, without its end; drops the oldest ones beyond the limits."""
        if call_id != self._call_id:
            self._lines.clear()
            self._call_id, self._size = call_id, 0
        line = line[:LINE]
        self._lines.append(line)
        self._size += len(line.encode(errors="replace"))
        while len(self._lines) > TAIL_LINES or self._size > TAIL_BYTES:
            self._size -= len(self._lines.popleft().encode(errors="replace"))

    def lines(self, call_id: str) -> list[str]:
        """The last lines, if they are of this call; else none."""
        return list(self._lines) if call_id == self._call_id else []
