"""Mails alerts by itself, if their cool-downs allow. Needs no store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from cordata import clock
from cordata.alert.cooldown import Cooldown, TooMany
from cordata.config.sections import AlertConfig, MailConfig
from cordata.core.alert import AlertGroup, AlertPace, add_to, subject_of, text_of
from cordata.errors import PermanentError
from cordata.log import logger

log = logger("cordata.alert")

_PAUSE_S = 1.0


class Alerter:
    """Mails alerts of one process; processes of one host share the cool-down."""

    def __init__(
        self,
        config: AlertConfig,
        mail: MailConfig,
        *,
        login: tuple[str, str] | None,
        directories: Sequence[Path],
        postpone: Callable[[AlertGroup], None],
    ) -> None:
        """`login`: user and password, if the server requires them.

        `directories`: for the cool-down's state, which is in the first writable one (see Cooldown).
        `postpone` is called with each alert to be mailed later: the server is away, this host has
        reached its limit of mails per hour, or no thread can be started.
        """
        self.pace = pace_of(config)
        self._config = config
        self._mail = mail
        self._login = login
        self._postpone = postpone
        self._cooldown = Cooldown(
            directories, cooldown_s=config.cooldown_s, max_per_hour=config.max_per_hour
        )
        self._guard = threading.RLock()  # as that of Buffer
        #: By fingerprint.
        self._pending: dict[str, AlertGroup] = {}
        #: Those that the thread has taken, until their mail is sent.
        self._mailing: list[AlertGroup] = []
        self._working = False

    @property
    def mails(self) -> bool:
        """Whether there are recipients, and a mail server."""
        return bool(self._config.to and self._mail.host)

    def mail(self, groups: list[AlertGroup]) -> bool:
        """Mail the pending alerts of these groups whose cool-downs allow it, as one mail; blocks
        for an SMTP conversation, and removes the others from `groups` before.

        Returns False when a mail was due and could not be sent now; never raises.
        """
        now, is_stored = clock.now().timestamp(), True
        due: list[AlertGroup] = []
        for group in [*groups]:
            cause, counted = group.cause, None
            try:
                counted = self._cooldown.claim(group.fingerprint, now=now, count=group.pending)
            except OSError as error:
                log.error("no mail about %s: its cool-down cannot be stored: %s", cause, error)
                self._postpone(group)
                is_stored = False
            except TooMany:
                log.error("no mail about %s now: the limit of mails per hour is reached", cause)
                self._postpone(group)
            if counted is None:
                groups.remove(group)
            else:
                due.append(replace(group, pending=counted + 1))
        if not due:
            return is_stored
        try:
            self._send(due)
        except _NotSent as error:
            causes = ", ".join(dict.fromkeys(group.cause for group in due))
            log.error("the mail about %s was not sent: %s", causes, error)
            for group, sent in zip(groups, due, strict=True):
                self._give_back(group, counted=sent.pending - 1, now=now)
            return False
        return is_stored

    def _give_back(self, group: AlertGroup, *, counted: int, now: float) -> None:
        try:
            self._cooldown.give_back(group.fingerprint, counted=counted, now=now)
        except OSError as error:
            log.error("the cool-down of %s cannot be stored: %s", group.cause, error)
        # Last: a process that finds the alert may claim its mail as soon as it is due.
        self._postpone(group)

    def mail_soon(self, group: AlertGroup) -> None:
        """`mail` for an event loop: returns at once; a separate thread sends the mail.

        It is a daemon thread, so that a hanging mail server cannot delay a shutdown. It ends when
        no alert waits.
        """
        with self._guard:
            add_to(self._pending, [replace(group)])  # the caller changes its own
            if self._working:
                return
            self._working = True
        try:
            threading.Thread(target=self._work, name="alert", daemon=True).start()
        except RuntimeError:  # the limit of threads is reached, or there is no memory
            while pending := self._take():
                for one in pending:
                    self._postpone(one)

    def end(self) -> None:
        """Postpone the alerts of `mail_soon` whose mails are not sent: the process ends."""
        with self._guard:
            unsent = [*self._mailing, *self._pending.values()]
        for group in unsent:
            self._postpone(group)

    def _work(self) -> None:
        while mailing := self._take():
            self.mail(mailing)
            mailing.clear()
            # Thousands of one kind then become one update of the state file per second.
            time.sleep(_PAUSE_S)

    def _take(self) -> list[AlertGroup]:
        """Remove and return the alerts that wait. After none the next alert starts a thread."""
        with self._guard:
            mailing = self._mailing = [*self._pending.values()]
            self._pending = {}
            self._working = bool(mailing)
        return mailing

    def _send(self, groups: Sequence[AlertGroup]) -> None:
        """Raises: _NotSent."""
        # An e-mail library and an event loop: 80 ms, not before an alert is due.
        import asyncio

        from cordata.mail.message import address
        from cordata.mail.smtp import MailRejected, SmtpUnavailable, send_now

        to = recipients_of(self._config)
        subject, body = subject_of(groups), text_of(groups, self.pace)
        try:
            refused = asyncio.run(
                send_now(self._mail, self._login, to=to, subject=subject, text=body)
            )
        except (SmtpUnavailable, MailRejected, PermanentError, ValueError, OSError) as error:
            raise _NotSent(f"{self._mail.host}:{self._mail.port}: {error}") from error
        except RuntimeError as error:  # no thread, in which names are looked up, can be started
            raise _NotSent(str(error)) from error
        if len(refused) == len({address(one) for one in to}):
            codes = ", ".join(map(str, sorted(set(refused.values()))))
            raise _NotSent(f"{self._mail.host}:{self._mail.port}: all recipients refused: {codes}")


class _NotSent(Exception):
    """The mail server did not accept the mail."""


def recipients_of(config: AlertConfig) -> list[str]:
    """The addresses of `[alert] to`; a bare name becomes a mailbox at localhost."""
    return [one if "@" in one else f"{one}@localhost" for one in config.to]


def pace_of(config: AlertConfig) -> AlertPace:
    """The limits of `[alert]`."""
    return AlertPace(
        count=config.count,
        wait_us=round(config.wait_s * 1e6),
        cooldown_us=round(config.cooldown_s * 1e6),
        max_per_hour=config.max_per_hour,
    )
