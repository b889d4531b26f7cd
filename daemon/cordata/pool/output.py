"""What commands print and log: from the child by a pipe to its worker, from there to the journal.

The child marks which call wrote what: a line of its own, `\\x1e<call id> <request id>`, written
only by a call that writes. What goes to the descriptors directly has no mark; the worker looks at
the status page. The child's half is `ChildOutput`, the worker's is `WorkerOutput`.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TextIO

from cordata import events
from cordata.log import LineHandler, TrailFormatter, fields, logger
from cordata.pool.protocol import call_id

log = logger("cordata.pool.child")

#: Starts the line of a mark.
MARK = "\x1e"
#: Of one child and second; what is more is counted, and named in the next second.
LINES_PER_S = 1000
#: A line that does not end is cut here.
_LONGEST = 16_384
#: Of what is kept for the caller of a call whose child died.
TAIL_LINES, TAIL_BYTES, LINE = 20, 4096, 1000
_CALL_ID = re.compile(r"[0-9a-f]{1,16}-[0-9]{1,19}")
_PRIORITY = re.compile(r"<([0-7])>")
#: By the priorities of sd-daemon(3).
_LEVELS = [logging.CRITICAL] * 3 + [logging.ERROR, logging.WARNING] + [logging.INFO] * 2
_LEVELS += [logging.DEBUG]


class ChildOutput:
    """stdout, stderr and the loggers of a child."""

    def __init__(self, level: str) -> None:
        self._marked = _Marked(1)
        # Not a BufferedWriter: what was printed before a crash is what one wants to read.
        self._texts = [self._text(), self._text()]
        sys.stdout, sys.stderr = self._texts
        handler = LineHandler(self._texts[1])
        handler.setFormatter(_Lines())
        root = logging.getLogger()
        root.handlers[:] = [handler]
        root.setLevel(level)
        # asyncio's own debug lines name its selector and nothing else of use.
        logging.getLogger("asyncio").setLevel(max(root.level, logging.INFO))
        logging.captureWarnings(True)

    def begin(self, client: int, id: int, request_id: str) -> None:
        """A call begins."""
        self._marked.call, self._marked.marked = (client, id, request_id), False

    def end(self) -> None:
        """The call is over; what it printed goes out."""
        if self._marked.used:  # to flush nothing takes ten times as long
            for text in self._texts:
                text.flush()
            self._marked.end()
        else:
            self._marked.call = None

    def _text(self) -> TextIO:
        return _Text(
            self._marked,
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )


class _Marked(io.RawIOBase):
    """The raw stream below stdout and stderr."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        #: Client, id and request id of the call in hand.
        self.call: tuple[int, int, str] | None = None
        #: Something was printed in it, ...
        self.used = False
        #: ... and has come here, after its mark.
        self.marked = False
        #: The last line is not finished, so a mark would stand in its middle.
        self._open = False

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """All of a buffer; waits for a worker that is slow."""
        view = memoryview(data).cast("B")
        self.used = True
        if view.nbytes:
            if self.call is not None and not self.marked:
                self._write_all(memoryview((b"\n" if self._open else b"") + self._mark(self.call)))
                self.marked = True
            self._write_all(view)
            self._open = view[-1] != 0x0A
        return view.nbytes

    def end(self) -> None:
        """What is written from now on is of no call."""
        if self.marked:
            self._write_all(memoryview(b"\n\x1e \n" if self._open else b"\x1e \n"))
            self._open = self.marked = False
        self.call, self.used = None, False

    @staticmethod
    def _mark(call: tuple[int, int, str]) -> bytes:
        client, id, request_id = call
        if not request_id.isprintable():  # a client's; it must not begin a line of its own
            request_id = ""
        return f"{MARK}{call_id(client, id)} {request_id}\n".encode(errors="replace")

    def _write_all(self, view: memoryview) -> None:
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            pass  # the worker is gone, and so are we


class _Text(io.TextIOWrapper):
    """Says below when something is written, which may stay here until the line ends."""

    def __init__(self, below: _Marked, **options: Any) -> None:
        super().__init__(below, **options)  # type: ignore[arg-type]  # it only writes
        self._below = below

    def write(self, text: str, /) -> int:
        """As ever."""
        self._below.used = True
        return super().write(text)


class _Lines(TrailFormatter):
    """`<6>area: text`, each line with its priority, as sd-daemon(3) has it."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.name}: {super().format(record)}"
        return "\n".join(f"<{_priority(record.levelno)}>{line}" for line in text.splitlines())


def _priority(level: int) -> int:
    if level >= logging.ERROR:
        return 3
    if level >= logging.WARNING:
        return 4
    return 6 if level >= logging.INFO else 7


class Line(NamedTuple):
    """One line, without its end."""

    text: str
    level: int
    #: CALL_ID of the call that wrote it, as far as a mark says so; else "".
    call_id: str
    request_id: str


class WorkerOutput:
    """The output of one child, on its way to the journal. The last lines are kept."""

    def __init__(self, worker: str, pid: int, *, running: Callable[[], str]) -> None:
        """`running` gives the CALL_ID of the call that runs, or ""."""
        self.tail = Tail()
        self._worker, self._pid = worker, pid
        self._running = running
        self._lines = LineCutter()
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
        self._log_left_out()

    def _pass_on(self, line: Line, now: float) -> None:
        # One without a mark was not printed by Python, or by no call.
        id = line.call_id or self._running()
        self.tail.add(line.text, id)
        if int(now) != self._second:
            self._log_left_out()
            self._second, self._count = int(now), 0
        self._count += 1
        if self._count <= LINES_PER_S:
            extra: dict[str, object] = {"call_id": id} if id else {}
            if line.request_id:
                extra["request_id"] = line.request_id
            self._log(line.level, line.text, extra)

    def _log_left_out(self) -> None:
        left_out = self._count - LINES_PER_S
        if left_out > 0:
            self._log(logging.WARNING, f"{left_out} lines of child {self._pid} are left out", {})

    def _log(self, level: int, text: str, extra: dict[str, object]) -> None:
        told = fields(events.POOL_CHILD_OUTPUT, worker=self._worker, child_pid=self._pid, **extra)
        log.log(level, "%s", text, extra=told)


class LineCutter:
    """Cuts the bytes of one child into lines. A mark says which call wrote those after it."""

    def __init__(self) -> None:
        self._rest = b""
        self._call_id = ""
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
        text, mark, told = line.partition(MARK.encode())
        if text:
            yield self._line(text.decode(errors="replace"))
        if mark:
            id, _, request_id = told.decode(errors="replace").partition(" ")
            self._call_id = id if _CALL_ID.fullmatch(id) else ""
            self._request_id = request_id[:200]

    def _line(self, text: str) -> Line:
        level, found = logging.INFO, _PRIORITY.match(text)
        if found:
            level, text = _LEVELS[int(found[1])], text[found.end() :]
        return Line(text[:LINE], level, self._call_id, self._request_id)


class Tail:
    """At most 20 lines and 4 KiB of text, lines cut at 1000 characters; all of one call.

    The caller gets them, and what a call of somebody else printed is none of their business.
    """

    __slots__ = ("_call_id", "_lines", "_size")

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._call_id = ""

    def add(self, line: str, call_id: str) -> None:
        """One more line, without its end, of this call; the oldest ones make room."""
        if call_id != self._call_id:
            self._lines.clear()
            self._call_id, self._size = call_id, 0
        line = line[:LINE]
        self._lines.append(line)
        self._size += len(line.encode(errors="replace"))
        while len(self._lines) > TAIL_LINES or self._size > TAIL_BYTES:
            self._size -= len(self._lines.popleft().encode(errors="replace"))

    def lines(self, call_id: str) -> tuple[str, ...]:
        """Those of this call."""
        return tuple(self._lines) if call_id == self._call_id else ()
