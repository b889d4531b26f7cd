"""The log handler of alerts: counts each error that a process logs, by kind, in its buffer.

So code that logs an error does nothing else to raise an alert.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from traceback import walk_tb
from types import TracebackType

from msgspec.structs import replace

from cordata import clock, events
from cordata.alert.alerter import Alerter
from cordata.core.alert import AlertGroup, add_to, fingerprint, group_of, without_variables
from cordata.log import message_of, trail

#: MESSAGE_ID -> cause. This process mails these at once and by itself, since the store or the
#: primary may be broken. (Failed units are mailed by OnFailure=.)
CAUSES = {
    events.CONFIG_INVALID: "config-invalid",
    events.DISK_FULL: "store-full",
    events.STORE_FAILED: "store-failed",
    events.MESSAGE_DEAD: "dead-letter",
    events.GROUP_ABSENT: "group-absent",
    events.SUBSCRIPTION_BLOCKED: "subscription-blocked",
    events.SUBSCRIPTION_DEAD: "dead-letter",
    events.MAIL_FAILED: "mail-failed",
    events.POOL_COMMAND_POISONED: "command-refused",
    events.POOL_SESSIONS_DAMAGED: "sessions-lost",
}
#: Prefix of the Message-ID of a mail with alerts. A failure of such a mail causes no further mail.
MAIL_PREFIX = "<alert."
#: All errors of one of these are one kind, whatever their text: each process has its own words for
#: an outage of the store, and a client chooses the path of its request.
_ONE_KIND = (events.DISK_FULL, events.STORE_FAILED, events.REQUEST_FAILED)
#: Texts of one cause that a process tells apart; all further ones are one kind. Texts may have
#: names in them, which must not fill the store.
_MAX_TEXTS = 100


class Buffer:
    """Alerts of one process on their way into the store: filled from any thread, emptied by one
    service.
    """

    def __init__(self) -> None:
        #: Called in the thread of `add` after each call of it.
        self.wake: Callable[[], None] | None = None
        # Reentrant: the garbage collector may run within it, and log an error of a task.
        self._guard = threading.RLock()
        self._groups: dict[str, AlertGroup] = {}

    def add(self, groups: Iterable[AlertGroup]) -> None:
        """Add these to the counts; never blocks for long, never raises."""
        with self._guard:
            add_to(self._groups, groups)
        if self.wake is not None:
            self.wake()

    def take(self) -> list[AlertGroup]:
        """Remove and return all."""
        with self._guard:
            taken, self._groups = self._groups, {}
        return list(taken.values())

    def put_back(self, groups: list[AlertGroup]) -> None:
        """Put back alerts that could not be stored, before those that came since."""
        with self._guard:
            since, self._groups = self._groups, {group.fingerprint: group for group in groups}
            add_to(self._groups, since.values())

    def __len__(self) -> int:
        return len(self._groups)


class AlertHandler(logging.Handler):
    """A second handler beside the log's own: counts errors by kind, and mails urgent ones."""

    def __init__(self, alerter: Alerter, buffer: Buffer, *, place: str) -> None:
        """`place`: host and role of this process."""
        super().__init__(logging.ERROR)
        self._alerter = alerter
        self._buffer = buffer
        self._place = place
        #: Cause -> fingerprints of its texts.
        self._texts: dict[str, set[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Count it, start a mail if it is urgent; never blocks."""
        if record.name == "cordata.alert":  # an error of the alerts themselves: no endless loop
            return
        try:
            group = self._group(record)
        except Exception:  # noqa: BLE001 -- a log call whose arguments do not fit
            self.handleError(record)
            return
        own_mail = str(getattr(record, "MESSAGE_ID_HEADER", "")).startswith(MAIL_PREFIX)
        at_once = group.urgent and self._alerter.mails and not own_mail
        self._buffer.add([replace(group, pending=0) if at_once or own_mail else group])
        if at_once:
            self._alerter.mail_soon(group)

    def _group(self, record: logging.LogRecord) -> AlertGroup:
        own, id_ = getattr(record, "ALERT", None), getattr(record, "MESSAGE_ID", "")
        text, now_us = message_of(record), clock.to_us(clock.now())
        error = record.exc_info[1] if record.exc_info else None
        place = _place_of(error.__traceback__) if error is not None else ""
        if own is not None:
            cause = f"app-{own}"
        elif id_ in CAUSES:
            cause = CAUSES[id_]
        elif place:
            cause = f"{record.name} {type(error).__name__} at {place}"
        else:
            cause = f"{record.name} error"
        if more := trail(error) if error is not None else getattr(record, "child_trail", ""):
            text = f"{text}\n{more}"
        # With an exception its type and place say the kind, whatever the message names; but one
        # that was never raised has no place.
        is_kind = own is not None or place != "" or id_ in _ONE_KIND
        key = "\0".join((cause, id_, "" if is_kind else self._kind_of(cause, text)))
        urgent = own is None and id_ in CAUSES
        return group_of(
            cause,
            text,
            place=self._place,
            now_us=now_us,
            urgent=urgent,
            key=key,
            ids=str(getattr(record, "ALERT_IDS", "")).split(),
        )

    def _kind_of(self, cause: str, text: str) -> str:
        kind, known = fingerprint(without_variables(text)), self._texts.setdefault(cause, set())
        if len(known) < _MAX_TEXTS:
            known.add(kind)
        return kind if kind in known else ""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: the handler that writes the log reports it."""


def _place_of(trace: TracebackType | None) -> str:
    """`module:function` of the innermost frame that is not the standard library's."""
    place = ""
    for frame, _ in walk_tb(trace):
        module = str(frame.f_globals.get("__name__", "?"))
        if not place or module.partition(".")[0] not in sys.stdlib_module_names:
            place = f"{module}:{frame.f_code.co_qualname}"
    return place
