"""One conversation with the SMTP server: aiosmtplib's many errors as three answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cordata.config.sections import MailConfig

if TYPE_CHECKING:
    from aiosmtplib import SMTP


class ServerTrouble(Exception):
    """The server, not one mail, is at fault: all mails wait."""


class MailRefused(Exception):
    """The server takes this mail for nobody; `code` tells whether for good."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused: {code}")
        self.code = code


async def connect(config: MailConfig, login: tuple[str, str] | None) -> SMTP:
    """Connect, secure and log in as configured. Raises: ServerTrouble."""
    import aiosmtplib  # only the primary, and only when there is mail: 60 ms

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
        async with asyncio.timeout(config.timeout_s):
            await client.connect()
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        client.close()
        raise ServerTrouble(_reason(error)) from error
    return client


async def converse(
    client: SMTP, *, sender: str, recipients: Sequence[str], message: bytes, timeout_s: float
) -> dict[str, int]:
    """Send one message. Returns the reply code of each recipient that was refused.

    Raises: MailRefused, ServerTrouble (a refused sender is one: it is the same for all mails).
    """
    import aiosmtplib

    try:
        async with asyncio.timeout(timeout_s):
            answers, _ = await client.sendmail(sender, recipients, message)
    except aiosmtplib.SMTPRecipientsRefused as error:
        return {one.recipient: one.code for one in error.recipients}
    except aiosmtplib.SMTPDataError as error:
        raise MailRefused(error.code) from error
    except (aiosmtplib.SMTPException, OSError) as error:
        raise ServerTrouble(_reason(error)) from error
    return {recipient: answer.code for recipient, answer in answers.items()}


async def leave(client: SMTP) -> None:
    """End the conversation, politely if the server still listens."""
    import aiosmtplib

    try:
        await client.quit()
    except (aiosmtplib.SMTPException, OSError):
        client.close()


def _reason(error: BaseException) -> str:
    """Type and reply code; a server's text may quote addresses."""
    code = getattr(error, "code", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


def _hostname() -> str:
    """For EHLO; without asking DNS, which may block."""
    name = socket.gethostname()
    plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
    return name if plain else "localhost"
