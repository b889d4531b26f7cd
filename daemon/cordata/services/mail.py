"""Sends mail rows by SMTP, on the primary, one after the other.

    pending ──mark──> sending ──accepted──> sent
       ^                 ├──refused permanently, or given up──> failed
       └──try later──────┘

The mark is committed before the conversation, and the result after it. If the process dies in
between, the row stays `sending`, and the mail is sent once more with the same Message-ID. The same
happens if the connection is lost before the server's last answer. These are the only cases of a
duplicate, and each concerns one mail.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordata import clock, events
from cordata.config.sections import MailConfig
from cordata.core.inline_image import read_inline_images
from cordata.core.retry import Backoff
from cordata.errors import PermanentError, StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import fields, in_request, logger
from cordata.mail.message import DeliveryResult, address, delivery_result, mime_message
from cordata.mail.smtp import MailRejected, SmtpUnavailable, connected, deliver
from cordata.metrics.process import Outcomes
from cordata.services.loop import WakeEvent, wake_on
from cordata.store import MAIL_TOPIC, Row, Store, Tx
from cordata.trace import untraced

if TYPE_CHECKING:
    from aiosmtplib import SMTP

log = logger("cordata.mail")

_HEARTBEAT_S = 10.0
#: Between attempts to store the result of a mail.
_STORE_BACKOFF = Backoff(0.5, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of one attempt to send a row."""

    state: str
    #: Whether the server accepted it for at least one recipient.
    accepted: bool = False
    remaining: list[str] | None = None
    last_error: str | None = None
    delay_s: float = 0.0


class MailService:
    """Wakes at the mail topic, when the next row is due, or when the server may be tried again."""

    name = "mail"

    def __init__(
        self,
        store: Store,
        config: MailConfig,
        *,
        login: tuple[str, str] | None = None,
        metrics: Outcomes | None = None,
    ) -> None:
        """`config`: with a host. `login`: user and password, if the server requires them.
        `metrics`: where attempts to send are counted.
        """
        max_age_s = 2 * config.timeout_s + _STORE_BACKOFF.longest_s + _HEARTBEAT_S
        self.heartbeat = Heartbeat(max_age_s=max_age_s)
        self._store = store
        self._config = config
        self._login = login
        self._metrics = metrics
        self._backoff = Backoff(config.retry_first_s, config.retry_max_s)
        self._failures = 0
        self._retry_deadline = 0.0

    def status(self) -> str:
        """For STATUS=."""
        return "mail server is away" if self._failures else ""

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop`, the current mail included. Raises: LeaseLost."""
        wake = WakeEvent()
        async with wake_on(wake, stop, self._store, MAIL_TOPIC):
            while not stop.is_set():
                self.heartbeat.touch()
                try:
                    sleep_s = await self.run_once(stop)
                except StoreUnavailable as error:
                    log.debug("mail waits for the store: %s", error)
                    sleep_s = _HEARTBEAT_S
                await wake.wait(min(sleep_s, _HEARTBEAT_S))

    async def run_once(self, stop: asyncio.Event) -> float:
        """Send the due mails over one connection. Returns the seconds until the next pass."""
        wait_s = self._retry_deadline - clock.monotonic()
        if wait_s > 0:
            return wait_s
        row = await self._next()
        if row is None:
            return await self._until_next()
        try:
            async with connected(self._config, self._login) as client:
                while row is not None and not stop.is_set():
                    await self._send(client, row)
                    self._heal()
                    row = await self._next()
        except SmtpUnavailable as error:
            return self._back_off(error)
        return 0.0 if row is not None else await self._until_next()

    async def _next(self) -> Row | None:
        """The next due row; rows that are too old are marked as failed."""
        while True:
            row = await self._store.read(lambda tx: tx.fetch_one("mail.due", now_us=tx.now_us))
            if row is None:
                return None
            if self._store.now_us() - row["created_at"] < self._config.give_up_s * 1e6:
                return row
            await self._record(row, _failed("given up: it is too old"))

    async def _until_next(self) -> float:
        async def unit(tx: Tx) -> int | None:
            row = await tx.fetch_one("mail.next_at")
            return None if row is None else row["next_at"]

        next_at = await self._store.read(unit)
        return _HEARTBEAT_S if next_at is None else max((next_at - self._store.now_us()) / 1e6, 0.0)

    async def _send(self, client: SMTP, row: Row) -> None:
        """One mail: mark, deliver, store the result. Raises: SmtpUnavailable, LeaseLost."""
        self.heartbeat.touch()
        # Its row does not say to which trace the request belonged.
        with in_request(row["request_id"]), untraced():
            if row["state"] == "sending":
                log.warning(
                    "the sender of mail %d died while it sent it; it is sent again", row["id"]
                )
            await self._store.run(lambda tx: tx.execute("mail.begin", id=row["id"]))
            begun = clock.monotonic()
            try:
                outcome = await self._deliver(client, row)
            except SmtpUnavailable as error:
                self._count("later", begun)
                await self._record(row, self._later(row, str(error)))
                raise
            self._count("later" if outcome.state == "pending" else outcome.state, begun)
            await self._record(row, outcome)

    def _count(self, outcome: str, begun: float) -> None:
        if self._metrics is not None:
            self._metrics.count(outcome, clock.monotonic() - begun)

    async def _deliver(self, client: SMTP, row: Row) -> _Outcome:
        try:
            sender = address(self._config.sender)
            recipients, message = self._message(row)
        except PermanentError as error:
            return _failed(f"not sendable: {error}")
        except ValueError as error:  # whose text may quote anything
            return _failed(f"not sendable: {type(error).__name__}")
        try:
            refused = await deliver(
                client,
                sender=sender,
                recipients=recipients,
                message=message,
                timeout_s=self._config.timeout_s,
            )
        except MailRejected as error:
            return _failed(str(error)) if error.code >= 500 else self._later(row, str(error))
        return self._outcome_of(row, delivery_result(recipients, refused))

    def _message(self, row: Row) -> tuple[list[str], bytes]:
        to = json.loads(row["to"])
        remaining = json.loads(row["remaining"]) if row["remaining"] else to
        message = mime_message(
            message_id=row["message_id"],
            sender=self._config.sender,
            to=to,
            subject=row["subject"],
            text=row["text"],
            html=row["html"],
            date=clock.from_us(row["created_at"]),
            inline=read_inline_images(row["inline"]),
        )
        return list(dict.fromkeys(address(one) for one in remaining)), message

    def _outcome_of(self, row: Row, result: DeliveryResult) -> _Outcome:
        codes = ", ".join(map(str, result.codes))
        error = f"{result.refused_count} of the recipients refused: {codes}" if codes else None
        if result.remaining:
            outcome = self._later(row, f"refused for now: {codes}", list(result.remaining))
            return dataclasses.replace(outcome, accepted=result.accepted_count > 0)
        anyone = result.accepted_count > 0 or row["sent_at"] is not None
        return _Outcome(state="sent" if anyone else "failed", accepted=anyone, last_error=error)

    def _later(self, row: Row, error: str, remaining: list[str] | None = None) -> _Outcome:
        before = json.loads(row["remaining"]) if row["remaining"] else None
        return _Outcome(
            state="pending",
            remaining=remaining or before,
            last_error=error,
            delay_s=self._backoff.delay_s(row["attempts"] + 1),
        )

    async def _record(self, row: Row, outcome: _Outcome) -> None:
        """Store the result, and retry while the store is away: else the mail is sent again."""

        async def unit(tx: Tx) -> None:
            await tx.execute(
                "mail.end",
                id=row["id"],
                state=outcome.state,
                remaining=json.dumps(outcome.remaining) if outcome.remaining else None,
                last_error=outcome.last_error,
                next_at=tx.now_us + int(outcome.delay_s * 1e6),
                sent_at=tx.now_us if outcome.accepted else None,
            )

        failures = 0
        while True:
            self.heartbeat.touch()
            try:
                await self._store.run(unit)
                break
            except StoreUnavailable as error:
                failures += 1
                if failures == 1:
                    log.warning("the result of mail %d cannot be stored: %s", row["id"], error)
            await asyncio.sleep(_STORE_BACKOFF.delay_s(failures))
        self._tell(row, outcome)

    def _tell(self, row: Row, outcome: _Outcome) -> None:
        """Ids and codes only: recipients and subjects stay out of the log."""
        about: dict[str, Any] = {"mail": row["id"], "message_id_header": row["message_id"]}
        if outcome.state == "sent":
            extra = fields(events.MAIL_SENT, **about)
            note = f"; {outcome.last_error}" if outcome.last_error else ""
            log.info("mail %d is sent%s", row["id"], note, extra=extra)
        else:
            failed = outcome.state == "failed"
            extra = fields(events.MAIL_FAILED, **about)
            level = logging.ERROR if failed else logging.WARNING
            fate = "failed" if failed else f"waits {outcome.delay_s:.0f} s"
            log.log(level, "mail %d %s: %s", row["id"], fate, outcome.last_error, extra=extra)

    def _back_off(self, error: SmtpUnavailable) -> float:
        self._failures += 1
        if self._failures == 1:
            server = f"{self._config.host}:{self._config.port}"
            text = "mail waits for the server %s: %s; try it with `cordata mail test`"
            log.warning(text, server, error, extra=fields(events.MAIL_FAILED))
        delay_s = self._backoff.delay_s(self._failures)
        self._retry_deadline = clock.monotonic() + delay_s
        return delay_s

    def _heal(self) -> None:
        if self._failures:
            log.info("the mail server is back")
        self._failures = 0


def _failed(error: str) -> _Outcome:
    return _Outcome(state="failed", last_error=error)
