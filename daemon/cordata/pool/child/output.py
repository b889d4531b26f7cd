"""The output of commands: marks which call wrote it, for the worker.

A mark is a separate line, `\\x1e<call id> <traceparent> <request id>`, written only if a call
writes. Output that bypasses Python has no mark; for it the worker (worker/output.py) reads the
status page.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any, TextIO

from cordata.log import LineHandler, TrailFormatter, syslog_priority
from cordata.pool.shared.protocol import OUTPUT_BREAK, OUTPUT_MARK, call_id
from cordata.trace import parse


class ChildOutput:
    """stdout, stderr and the loggers of a child."""

    def __init__(self, level: str) -> None:
        self._marked = _Marked()
        # Not a BufferedWriter: it would lose the last lines before a crash.
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

    def begin(self, client: int, id: int, request_id: str, traceparent: str) -> None:
        """Set the current call."""
        self._marked.call = client, id, request_id, traceparent
        self._marked.marked = False

    def end(self) -> None:
        """Flush what the call printed; it is over."""
        for text in self._texts:
            text.flush()
        self._marked.end()

    def _text(self) -> TextIO:
        return io.TextIOWrapper(  # type: ignore[type-var]  # it only writes
            self._marked,
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )


class _Marked(io.RawIOBase):
    """The raw stream below stdout and stderr."""

    def __init__(self) -> None:
        #: Client, id, request id and traceparent of the current call.
        self.call: tuple[int, int, str, str] | None = None
        #: The call has printed something, and its mark is written.
        self.marked = False
        #: The last line is not finished, so a mark needs a line end before it.
        self._open = False

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """Write the whole buffer; blocks while the pipe to the worker is full."""
        view = memoryview(data).cast("B")
        if view.nbytes:
            if self.call is not None and not self.marked:
                self._write_all(memoryview((b"\n" if self._open else b"") + self._mark(self.call)))
                self.marked = True
            self._write_all(view)
            self._open = view[-1] != 0x0A
        return view.nbytes

    def end(self) -> None:
        """End the call: further output belongs to no call."""
        if self.marked:
            self._write_all(memoryview(b"\n\x1e \n" if self._open else b"\x1e \n"))
            self._open = self.marked = False
        self.call = None

    @staticmethod
    def _mark(call: tuple[int, int, str, str]) -> bytes:
        client, id, request_id, traceparent = call
        if not request_id.isprintable():  # from a client: a line end in it would forge a line
            request_id = ""
        if parse(traceparent) is None:
            traceparent = ""
        mark = f"{OUTPUT_MARK}{call_id(client, id)} {traceparent} {request_id}\n"
        return mark.encode(errors="replace")

    def _write_all(self, view: memoryview) -> None:
        try:
            while view:
                view = view[os.write(1, view) :]  # stderr is the same pipe
        except OSError:
            pass  # the worker is gone, so this process ends as well


class _Lines(TrailFormatter):
    """`<6>area: text`, with its priority as sd-daemon(3) has it; one line for the whole record."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.name}: {super().format(record)}"
        return f"<{syslog_priority(record.levelno)}>{OUTPUT_BREAK.join(text.splitlines())}"
