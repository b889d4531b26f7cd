"""What commands print and log: lines to the worker, with a mark that tells which call wrote them.

The mark is a line of its own, `\\x1e<serial> <request id>`, and is written only by a call that
writes. What goes to the descriptors directly has none; the worker looks at the state page then.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any, TextIO

from cordata.log import LineHandler, TrailFormatter

#: Starts the line of a mark.
MARK = "\x1e"


class Marked(io.RawIOBase):
    """The raw stream below stdout and stderr."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        #: Number and request id of the call in hand; 0: there is none.
        self.call = (0, "")
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
            if self.call[0] and not self.marked:
                self._write_all(memoryview((b"\n" if self._open else b"") + self._mark()))
                self.marked = True
            self._write_all(view)
            self._open = view[-1] != 0x0A
        return view.nbytes

    def end(self) -> None:
        """What is written from now on is of no call."""
        if self.marked:
            self._write_all(memoryview(b"\n\x1e0 \n" if self._open else b"\x1e0 \n"))
            self._open = self.marked = False
        self.call, self.used = (0, ""), False

    def _mark(self) -> bytes:
        serial, request_id = self.call
        if not request_id.isprintable():  # a client's; it must not begin a line of its own
            request_id = ""
        return f"{MARK}{serial} {request_id}\n".encode(errors="replace")

    def _write_all(self, view: memoryview) -> None:
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            pass  # the worker is gone, and so are we


class Output:
    """stdout, stderr and the loggers of a child."""

    def __init__(self, level: str) -> None:
        self._marked = Marked(1)
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

    def begin(self, serial: int, request_id: str) -> None:
        """A call begins."""
        self._marked.call, self._marked.marked = (serial, request_id), False

    def end(self) -> None:
        """The call is over; what it printed goes out."""
        if self._marked.used:  # to flush nothing takes ten times as long
            for text in self._texts:
                text.flush()
            self._marked.end()
        else:
            self._marked.call = (0, "")

    def _text(self) -> TextIO:
        return _Text(
            self._marked,
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )


class _Text(io.TextIOWrapper):
    """Says below when something is written, which may stay here until the line ends."""

    def __init__(self, below: Marked, **options: Any) -> None:
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
