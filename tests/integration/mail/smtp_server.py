"""A real SMTP server on a free loopback port, whose answers a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(slots=True)
class Mailbox:
    """What the server got, and how it answers."""

    port: int = 0
    got: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    #: Address -> answer to RCPT TO.
    rcpt: dict[str, str] = field(default_factory=dict)
    #: Answers to DATA, the first for the first mail; then 250.
    data: list[str] = field(default_factory=list)
    #: Bytes of a mail; the server announces it (RFC 1870), and refuses a larger one at MAIL FROM.
    max_bytes: int = 1_000_000
    #: Called with each accepted mail before the server answers.
    on_mail: Callable[[], None] | None = None
    #: Commands that are not answered before `thawed`: DATA (its mail has come then), QUIT.
    frozen: set[str] = field(default_factory=set)
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set when a frozen command has come.
    waits: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle_RCPT(
        self, server: Any, session: Session, envelope: Envelope, to: str, options: list[str]
    ) -> str:
        """The chosen answer for a recipient."""
        answer = self.rcpt.get(to, "250 OK")
        if answer.startswith("250"):
            envelope.rcpt_tos.append(to)
        return answer

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        """Keep the mail, then the chosen answer."""
        await self._freeze("DATA")
        answer = self.data.pop(0) if self.data else "250 OK"
        if answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            mail = message_from_bytes(envelope.content, policy=policy.default)
            self.got.append((list(envelope.rcpt_tos), mail))
            if self.on_mail is not None:
                self.on_mail()
        return answer

    async def handle_QUIT(self, server: Any, session: Session, envelope: Envelope) -> str:
        """The usual answer."""
        await self._freeze("QUIT")
        return "221 Bye"

    async def _freeze(self, command: str) -> None:
        if command in self.frozen:
            self.waits.set()
            await self.thawed.wait()

    @property
    def ids(self) -> list[str]:
        """Message-IDs in the order of arrival."""
        return [str(mail["Message-ID"]) for _, mail in self.got]


@asynccontextmanager
async def smtp_server(box: Mailbox) -> AsyncIterator[Mailbox]:
    """Serve `box` on box.port (0: a free one, which is then put there)."""
    loop = asyncio.get_running_loop()
    connections: list[SMTP] = []

    def connection() -> SMTP:
        connections.append(SMTP(box, data_size_limit=box.max_bytes, loop=loop, hostname="test"))
        return connections[-1]

    server = await loop.create_server(connection, "127.0.0.1", box.port)
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        box.thawed.set()
        server.close()
        # A client in another thread may still have to send QUIT after the last mail.
        await _ended(connections)


async def _ended(connections: list[SMTP]) -> None:
    if handlers := [task for each in connections if (task := each._handler_coroutine)]:
        await asyncio.wait(handlers, timeout=10)
    for each in connections:
        if each.transport is not None:
            each.transport.close()
    if handlers:
        await asyncio.wait(handlers)
