"""Log records of a few events become alerts: who logs them need not know who is told."""

from __future__ import annotations

import logging

from cordata import events
from cordata.alert.alerter import Alerter

#: MESSAGE_ID: the cause its cool-down counts by. Failed units have OnFailure= for that.
CAUSES = {
    events.DISK_FULL: "store-full",
    events.STORE_FAILED: "store-failed",
    events.MESSAGE_DEAD: "dead-letter",
    events.PROJECTION_BLOCKED: "subscription-blocked",
    events.PROJECTION_DEAD: "dead-letter",
    events.MAIL_FAILED: "mail-failed",
    events.POOL_COMMAND_POISONED: "command-refused",
    events.POOL_JOURNAL_FAILED: "sessions-unsaved",
}


class AlertHandler(logging.Handler):
    """Beside the handler that writes the log: mails about the events in CAUSES, and about what the
    application raises by `Context.alert`.
    """

    def __init__(self, alerter: Alerter) -> None:
        super().__init__(logging.ERROR)
        self._alerter = alerter

    def emit(self, record: logging.LogRecord) -> None:
        """Start the mail, if its cool-down allows; never blocks."""
        own = getattr(record, "ALERT", None)
        cause = CAUSES.get(getattr(record, "MESSAGE_ID", "")) if own is None else f"app-{own}"
        if cause is not None and self._alerter.mails:
            self._alerter.mail_soon(cause, record.getMessage())
