"""One conversation with the SMTP server, with two errors instead of aiosmtplib's many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import make_msgid
from typing import TYPE_CHECKING

from cordata import clock
from cordata.config.sections import MailConfig
from cordata.mail.message import address, mime_message

if TYPE_CHECKING:
    from aiosmtplib import SMTP

#: Reply to MAIL FROM when the mail is larger than the server takes (RFC 1870, 6.1).
_TOO_LARGE = 552
#: Longest wait for the answer to QUIT: nothing depends on it.
_QUIT_S = 2.0


class SmtpUnavailable(Exception):
    """The server cannot be used, for any mail: all mails wait."""


class MailRejected(Exception):
    """The server refuses this mail for all recipients; `code`: 4xx for now, 5xx permanently."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused: {code}")
        self.code = code


@asynccontextmanager
async def connected(config: MailConfig, login: tuple[str, str] | None) -> AsyncIterator[SMTP]:
    """Connect, secure and log in as configured. The conversation ends with QUIT; if the block
    fails or is cancelled, the connection is closed at once. Raises: SmtpUnavailable.
    """
    import aiosmtplib  # 60 ms, and only when there is mail

    user, password = login or (None, None)
    client = aiosmtplib.SMTP(
        hostname=config.host,
        port=config.port,
        use_tls=config.security == "tls",
        start_tls=config.security == "starttls",
        username=user,
        password=password,
        local_hostname=_hostname(),
        timeout=config.timeout_s,
    )
    try:
        try:
            async with asyncio.timeout(config.timeout_s):
                await client.connect()
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise SmtpUnavailable(_reason(error, config.timeout_s)) from error
        yield client
        with suppress(aiosmtplib.SMTPException, OSError):
            await client.quit(timeout=_QUIT_S)
    finally:
        client.close()


async def deliver(
    client: SMTP, *, sender: str, recipients: Sequence[str], message: bytes, timeout_s: float
) -> dict[str, int]:
    """Send one message. Returns the reply code of each recipient that was refused.

    Raises: MailRejected, also when it is too large; SmtpUnavailable, also for a refused sender: all
    mails have the same one.
    """
    import aiosmtplib

    try:
        async with asyncio.timeout(timeout_s):
            answers, _ = await client.sendmail(sender, recipients, message)
    except aiosmtplib.SMTPRecipientsRefused as error:
        return {one.recipient: one.code for one in error.recipients}
    except aiosmtplib.SMTPDataError as error:
        raise MailRejected(error.code) from error
    except (aiosmtplib.SMTPException, OSError) as error:
        if isinstance(error, aiosmtplib.SMTPSenderRefused) and error.code == _TOO_LARGE:
            raise MailRejected(error.code) from error
        raise SmtpUnavailable(_reason(error, timeout_s)) from error
    return {recipient: answer.code for recipient, answer in answers.items()}


async def send_now(
    config: MailConfig,
    login: tuple[str, str] | None,
    *,
    to: Sequence[str],
    subject: str,
    text: str,
) -> dict[str, int]:
    """`deliver` a mail of this program over a connection of its own, without the store.

    Raises: as `deliver`; PermanentError when [mail] sender or one of `to` is not an address.
    """
    message = mime_message(
        message_id=make_msgid(domain=socket.gethostname()),
        sender=config.sender,
        to=to,
        subject=subject,
        text=text,
        html=None,
        date=clock.now(),
    )
    sender, recipients = address(config.sender), [address(one) for one in to]
    async with connected(config, login) as client:
        return await deliver(
            client,
            sender=sender,
            recipients=recipients,
            message=message,
            timeout_s=config.timeout_s,
        )


def next_step(reason: str) -> str:
    """What to do about the text of a SmtpUnavailable."""
    if "Authentication" in reason:
        return "correct the credentials smtp-user and smtp-password, then restart primary"
    if "no answer" in reason or "Connect" in reason:
        return "check [mail] host and port, and whether a firewall is between"
    return 'check [mail] port and security: 25 "none", 587 "starttls", 465 "tls"'


def _reason(error: BaseException, timeout_s: float) -> str:
    """Type and reply code, without the server's text, which may quote addresses."""
    if isinstance(error, TimeoutError):  # aiosmtplib's are, too
        return f"no answer within {timeout_s:g} s"
    code = getattr(error, "code", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


def _hostname() -> str:
    """The name for EHLO, without a DNS query, which may block."""
    name = socket.gethostname()
    plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
    return name if plain else "localhost"
