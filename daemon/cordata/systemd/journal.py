"""Where log records go: structured into the journal, or as readable lines to stderr.

Only types and places of an exception are logged: its message may quote personal data or a secret,
and logs are copied and stored for long. At level debug, for development, it is logged in full.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from cordata.log import (
    HANDLER,
    LineHandler,
    TrailFormatter,
    log_unformattable,
    message_of,
    request_id,
    syslog_priority,
)
from cordata.trace import current_trace

_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}
_RESET = "\x1b[0m"


def install_logging(level: str = "info", *, role: str = "") -> None:
    """Send every record of this process to the journal if stderr is the journal, else to stderr.

    `role` (for example `worker@0`) marks the lines on stderr; the journal adds the unit.
    Calling it again replaces the handler.
    """
    handler: logging.Handler
    if stderr_is_journal():
        handler = journal_handler()
    else:
        handler = LineHandler(sys.stderr)
        handler.setFormatter(LineFormatter(role=role, colour=is_terminal(sys.stderr)))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    handler.set_name(HANDLER)
    root.addHandler(handler)
    # Thread, process and task are not logged; asking for them costs at every record.
    for flag in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, flag, False)
    logging.captureWarnings(True)
    set_level(level)


def set_level(level: str) -> None:
    """Set the level: debug, info, warning or error. Also for a reload."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    # asyncio's own debug lines name its selector and nothing else of use.
    logging.getLogger("asyncio").setLevel(max(number, logging.INFO))


def stderr_is_journal(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether stderr is the stream that $JOURNAL_STREAM names by device and inode."""
    try:
        stat = os.fstat(2)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"


def is_terminal(stream: TextIO) -> bool:
    """Whether to write colours: to a terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def journal_handler() -> logging.Handler:
    """python-systemd's JournalHandler, limited to the fields that are useful in the journal.

    The stock one sends every attribute of the record, lower-case names and arguments included:
    twice the cost, and arguments may hold what must not be stored.
    """
    from systemd import journal  # 12 ms, only under systemd

    class Handler(journal.JournalHandler):  # type: ignore[misc]
        def emit(self, record: logging.LogRecord) -> None:
            try:
                journal.sendv(*_journal_fields(record, self.format(record)))
            except Exception:  # noqa: BLE001 - a log call must never fail its caller
                self.handleError(record)

        def handleError(self, record: logging.LogRecord) -> None:
            log_unformattable(record)

    handler = Handler(SYSLOG_IDENTIFIER="cordata")
    handler.setFormatter(TrailFormatter())
    return handler


def _journal_fields(record: logging.LogRecord, message: str) -> list[bytes]:
    values: dict[str, object] = {
        "MESSAGE": message,
        "PRIORITY": syslog_priority(record.levelno),
        "SYSLOG_IDENTIFIER": "cordata",
        "LOGGER": record.name,
        "CODE_FILE": record.pathname,
        "CODE_LINE": record.lineno,
        "CODE_FUNC": record.funcName,
    }
    current = request_id.get()
    if current:
        values["REQUEST_ID"] = current
    if (trace := current_trace()) is not None:
        values.update(trace.log_fields())
    if record.exc_info and record.exc_info[0]:
        values["EXCEPTION"] = record.exc_info[0].__name__
    values.update((key, value) for key, value in record.__dict__.items() if key.isupper())
    return [f"{key}={value}".encode(errors="backslashreplace") for key, value in values.items()]


class LineFormatter(TrailFormatter):
    """`2026-01-31T08:00:00.123Z INFO worker@0 http: message (REQUEST_ID)`, one line per record.

    Line breaks in the message are escaped, so that nothing from outside forges a line; a
    traceback follows on lines of its own, indented.
    """

    def __init__(self, *, role: str = "", colour: bool = False) -> None:
        super().__init__()
        self._role = f"{_escaped(role)} " if role else ""
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        seconds, fraction = divmod(record.created, 1)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        area = record.name.removeprefix("cordata.")
        message = _escaped(message_of(record))
        line = (
            f"{at}.{int(fraction * 1000):03d}Z {record.levelname:<7} {self._role}{area}: {message}"
        )
        current = getattr(record, "REQUEST_ID", None) or request_id.get()
        if current and current not in message:
            line += f" ({_escaped(current)})"
        if self._colour and record.levelno in _COLOURS:
            line = f"{_COLOURS[record.levelno]}{line}{_RESET}"
        lines = [line, *(f"    {_escaped(more)}" for more in self.trail_of(record).splitlines())]
        return "\n".join(lines)


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
