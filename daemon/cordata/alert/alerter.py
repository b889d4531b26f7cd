"""Raises one alert: a line in the journal, then a mail if the cool-down allows. Needs no store."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cordata import clock
from cordata.alert.cooldown import Cooldown, TooMany
from cordata.config.sections import AlertConfig, MailConfig
from cordata.errors import PermanentError
from cordata.log import fields, logger

log = logger("cordata.alert")

_PAUSE_S = 1.0


class Alerter:
    """Raises alerts of one process; processes of one host share the cool-down."""

    def __init__(
        self,
        config: AlertConfig,
        mail: MailConfig,
        *,
        login: tuple[str, str] | None,
        directories: Sequence[Path],
        postpone: Callable[[str, str, int], None],
    ) -> None:
        """`login`: user and password, if the server requires them.

        `directories`: for the cool-down's state, which is in the first writable one (see Cooldown).
        `postpone` is called with each alert to be mailed later (cause, text, count): the server is
        away, or this host has reached its limit of mails per hour.
        """
        self._config = config
        self._mail = mail
        self._login = login
        self._postpone = postpone
        self._cooldown = Cooldown(
            directories, cooldown_s=config.cooldown_s, max_per_hour=config.max_per_hour
        )
        self._guard = threading.Lock()
        #: By cause: the latest text, and how often.
        self._pending: dict[str, tuple[str, int]] = {}
        self._working = False

    @property
    def mails(self) -> bool:
        """Whether there are recipients, and a mail server."""
        return bool(self._config.to and self._mail.host)

    def alert(self, cause: str, text: str, *, message_id: str = "") -> bool:
        """Log the alert, and mail it if the cool-down allows; blocks for an SMTP conversation.

        `cause` is the key of the cool-down: a unit's name, `store-full`, ... The first line of
        `text` is the log message and the mail's subject. Returns False when a mail was due and
        could not be sent now; never raises.
        """
        log.error("%s", text.split("\n", 1)[0], extra=fields(message_id, cause=cause))
        return not self.mails or self.mail(cause, text)

    def mail(self, cause: str, text: str, *, count: int = 1) -> bool:
        """As `alert`, without the log line. `count`: alerts of the cause since the last call."""
        now = clock.now().timestamp()
        try:
            counted = self._cooldown.claim(cause, now=now, count=count)
        except OSError as error:
            log.error("no mail about %s: its cool-down cannot be stored: %s", cause, error)
            self._postpone(cause, text, count)
            return False
        except TooMany:
            log.error("no mail about %s now: the limit of mails per hour is reached", cause)
            self._postpone(cause, text, count)
            return True
        if counted is None:
            return True
        try:
            self._send(cause, text, counted)
        except _NotSent as error:
            log.error("the mail about %s was not sent: %s", cause, error)
            try:
                self._cooldown.give_back(cause, counted=counted, now=now)
            except OSError as second:
                log.error("the cool-down of %s cannot be stored: %s", cause, second)
            # Last: a process that finds the alert may claim its mail as soon as it is due.
            self._postpone(cause, text, count)
            return False
        return True

    def mail_soon(self, cause: str, text: str, *, count: int = 1) -> None:
        """`mail` for an event loop: returns at once; a separate thread sends the mail.

        It is a daemon thread, so that a hanging mail server cannot delay a shutdown. It ends when
        no alert waits.
        """
        with self._guard:
            self._pending[cause] = (text, self._pending.get(cause, ("", 0))[1] + count)
            if self._working:
                return
            self._working = True
        threading.Thread(target=self._work, name="alert", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._guard:
                pending, self._pending = self._pending, {}
                if not pending:
                    self._working = False
                    return
            for cause, (text, count) in pending.items():
                self.mail(cause, text, count=count)
            # Thousands of one cause then become one update of the state file per second.
            time.sleep(_PAUSE_S)

    def _send(self, cause: str, text: str, counted: int) -> None:
        """Raises: _NotSent."""
        # An e-mail library and an event loop: 80 ms, not before an alert is due.
        import asyncio

        from cordata.mail.message import address
        from cordata.mail.smtp import MailRejected, SmtpUnavailable, send_now

        to = recipients_of(self._config)
        subject, body = compose(cause, text, counted, self._config, socket.gethostname())
        try:
            refused = asyncio.run(
                send_now(self._mail, self._login, to=to, subject=subject, text=body)
            )
        except (SmtpUnavailable, MailRejected, PermanentError, ValueError, OSError) as error:
            raise _NotSent(f"{self._mail.host}:{self._mail.port}: {error}") from error
        if len(refused) == len({address(one) for one in to}):
            codes = ", ".join(map(str, sorted(set(refused.values()))))
            raise _NotSent(f"{self._mail.host}:{self._mail.port}: all recipients refused: {codes}")


class _NotSent(Exception):
    """The mail server did not accept the mail."""


def recipients_of(config: AlertConfig) -> list[str]:
    """The addresses of `[alert] to`; a bare name becomes a mailbox at localhost."""
    return [one if "@" in one else f"{one}@localhost" for one in config.to]


def compose(cause: str, text: str, counted: int, config: AlertConfig, host: str) -> tuple[str, str]:
    """Subject and text of the mail: what happened, on which host, how often. No request content."""
    text = text.encode(errors="backslashreplace").decode()  # a path may hold any byte
    lines = [text, "", f"Host: {host}"]
    if counted:
        times = "once more" if counted == 1 else f"{counted} times more"
        lines.append(f"It happened {times} since the last mail about {cause}.")
    lines.append(f"Further ones within {config.cooldown_s:g} s are counted, not mailed.")
    first_line = " ".join(text.split("\n", 1)[0].split())
    return f"[{host}] {first_line}"[:200], "\n".join(lines) + "\n"
