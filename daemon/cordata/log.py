"""Log records carry the request id and stable MESSAGE_IDs; cordata.systemd says where they go."""

from __future__ import annotations

import logging
from contextvars import ContextVar

#: Id of the request, message or job in hand: in every log line and stored row it causes.
request_id: ContextVar[str] = ContextVar("request_id", default="")


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
