"""Log records carry the request id and stable MESSAGE_IDs; cordata.systemd says where they go."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from types import TracebackType

#: Id of the request, message or job in hand: in every log line and stored row it causes.
request_id: ContextVar[str] = ContextVar("request_id", default="")

_FRAMES = 5


def logger(name: str) -> logging.Logger:
    """The logger of one area, for example `cordata.http`."""
    return logging.getLogger(name)


def fields(message_id: str = "", /, **values: object) -> dict[str, object]:
    """`extra=` for a log call: journal fields in upper case, by which `journalctl` filters.

    `log.info("…", extra=fields(events.REQUEST_REFUSED, status=413))` gives STATUS=413.
    Names that `logging.LogRecord` owns cannot clash with them, since those are lower case.
    """
    extra = {name.upper(): value for name, value in values.items()}
    if message_id:
        extra["MESSAGE_ID"] = message_id
    current = request_id.get()
    if current:
        extra.setdefault("REQUEST_ID", current)
    return extra


def frames(trace: TracebackType | None) -> str:
    """The innermost frames of a traceback, `file:line < caller:line`, without any values."""
    places: list[str] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(places[-_FRAMES:])) or "no frame"
