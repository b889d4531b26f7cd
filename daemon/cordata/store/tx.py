"""Tx: what a unit of work may await, the same on every store."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from cordata import clock, log
from cordata.core.inline_image import InlineImage, check_inline_images
from cordata.core.naming import check_event_names, check_key
from cordata.errors import Conflict, CordataError, KeyReused, PermanentError

T = TypeVar("T")
#: A unit of work; awaits nothing but tx, and may run more than once.
Unit = Callable[["Tx"], Awaitable[T]]
#: Awaited on PostgreSQL before a unit or a `transaction()` writes; set by `cordata.testing.race`.
before_write: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar(
    "cordata_store_before_write", default=None
)

#: The statement that writes an event and its messages. On PostgreSQL its count is that of messages.
PUBLISH = "queue.publish"
#: Wakes the consumers of events, and the relays: one was published.
QUEUE_TOPIC = "queue"
#: The same: messages of events that were published before may be claimed (again).
MESSAGE_TOPIC = "message"
#: Wakes the mail service.
MAIL_TOPIC = "mail"
#: Wakes the primary's checkpoint service.
CHECKPOINT_TOPIC = "checkpoint"

#: The next step when a table or column is missing.
MISSING_HINT = (
    "is it in a migration of the package that app.migrations() names? `cordata migrate --check`"
    " tells what is pending"
)

#: Event types that this process has published, 1,000 at most: services/unhandled_event.py warns of
#: those without a group.
published_types: set[str] = set()

_encode = msgspec.json.Encoder(decimal_format="string").encode


class Row(Protocol):
    """A row: `row["column"]`, and `dict(row)`."""

    def __getitem__(self, key: str, /) -> Any: ...

    def keys(self) -> Iterable[str]:
        """The names of the columns."""
        ...


class Tx(ABC):
    """One unit's view of the store, valid until the unit ends.

    A statement that fails ends the unit: every later call raises the same error again and the
    unit fails with it, even when it caught the first one. (PostgreSQL does so by itself. To learn
    whether a row exists already, write `ON CONFLICT DO NOTHING` and look at the rows changed.)

    `rows` (a number) and `lock` (a bool) are options: no parameter of a statement has these names.
    They are typed Any, since a mapping of parameters that is passed with ** may hold anything.
    """

    __slots__ = ("failed", "now_us", "topics")

    def __init__(self, now_us: int) -> None:
        #: Whom to wake after the commit.
        self.topics: set[str] = set()
        #: The error of the statement that ended the unit.
        self.failed: CordataError | None = None
        #: One wall time for the whole unit, in microseconds since the epoch.
        self.now_us = now_us

    @abstractmethod
    async def execute(self, name: str, /, **params: object) -> int:
        """Run a statement; the number of rows changed. Raises: Conflict, StoreUnavailable."""

    @abstractmethod
    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """Run a statement whose result the unit does not need.

        `rows`: how many rows it must change; any other number ends the unit with a Conflict before
        anything is committed.

        An error may be raised later, at the end of the unit at the latest, which fails with it. On
        PostgreSQL it costs no round trip of its own.
        """

    @abstractmethod
    async def insert(self, table: str, /, **columns: object) -> None:
        """Add one row to a table; the columns that are not given have their defaults.

        As `write`: errors may come later. A key that exists already is a Conflict. On PostgreSQL
        rows that batched units add to one table go out as one statement.
        """

    @abstractmethod
    async def execute_many(self, name: str, rows: Sequence[Mapping[str, object]], /) -> int:
        """Run a statement once per mapping of parameters; the number of rows changed."""

    @abstractmethod
    async def fetch_one(self, name: str, /, *, lock: Any = False, **params: object) -> Row | None:
        """The first row of a query, or None. A statement with RETURNING counts as a query.

        `lock`: no other unit changes or locks the rows that the query finds until this one has
        ended. On PostgreSQL FOR UPDATE is appended, unless the query locks by itself and has the
        line `-- newest` in its file; on SQLite units run one at a time anyway.
        """

    @abstractmethod
    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """All rows of a query; `lock` as for `fetch_one`."""

    async def publish(
        self,
        type: str,
        payload: Mapping[str, Any],
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay_s: float = 0.0,
        at: datetime | int | None = None,
        event_id: str | None = None,
    ) -> str:
        """Write an event, and one message for each group that is registered for its type.

        `payload` is anything that msgspec writes as a JSON object. The header `request_id` is that
        of the current request. Groups with `App.on(key=True)` handle events of one `key` one at a
        time, in the order in which they were written.

        Due at once, `delay_s` seconds from `now_us` on, or `at` a moment (aware datetime, or
        microseconds since the epoch; one in the past is now): until then it costs nothing and
        delays nothing. Of what is due the highest `priority` (a 32-bit number) goes first, then the
        oldest. A priority below 0 is for background work: it takes a quarter of a group's slots at
        most. Groups that want the order of keys know no priority.

        Returns the event id. Raises: Conflict when `event_id` exists already; TypeError when
        msgspec cannot write the payload; PermanentError when the priority is none, the type has
        none or more than 200 characters, the key has more than 1,024 bytes, one of them has a NUL
        character, or both `at` and `delay_s` are given; ValueError for a naive datetime.
        """
        if not -(2**31) <= priority < 2**31:
            raise PermanentError(
                f"publish({type!r}): {priority=}", hint="the priority is a 32-bit number"
            )
        check_event_names(type, key, event_id)
        event_id = event_id or new_id(self.now_us)
        heads = dict(headers or {})
        if request_id := log.request_id.get():
            heads.setdefault("request_id", request_id)
        await self._write_event(
            event_id=event_id,
            type=type,
            key=key,
            priority=priority,
            payload=_encode(payload).decode(),
            headers=_encode(heads).decode() if heads else "{}",
            due_at=self._due_at(at, delay_s),
            created_at=self.now_us,
        )
        if type not in published_types and len(published_types) < 1000:
            published_types.add(type)
        return event_id

    async def _write_event(self, **event: object) -> None:
        """Write a row of `event`, and have consumers woken: where that is known, only if it made
        messages.
        """
        await self.write(PUBLISH, **event)
        self.topics.add(QUEUE_TOPIC)

    def _due_at(self, at: datetime | int | None, delay_s: float) -> int:
        if at is None:
            return self.now_us + max(int(delay_s * 1_000_000), 0)
        if delay_s:
            raise PermanentError("publish(): either at or delay_s")
        return max(clock.to_us(at) if isinstance(at, datetime) else at, self.now_us)

    async def remembered(
        self, scope: str, key: str, answer: Callable[[], Awaitable[str]], *, body_hash: str
    ) -> str:
        """The response that is stored under an idempotency key; else that of `answer()`, stored.

        `answer` runs within this unit and awaits nothing but its tx: what it writes, and its
        response, are stored together or not at all, so a request that is sent again has its effect
        once and gets the same response. `scope` tells callers apart who choose their keys
        themselves. `body_hash` is that of the request: the same key means the same request. A key
        is kept for `[engine] retention_s`.

        Raises: PermanentError when scope or key have more than 1,024 bytes or a NUL character;
        KeyReused when the key came with another body; what `answer` raises (then nothing is
        remembered). When another unit stores the key at the same moment, `run` runs this one again,
        and it finds what that one stored; in a `transaction()` that is a Conflict.
        """
        check_key(scope, "the scope of an idempotency key")
        check_key(key, "an idempotency key")
        row = await self.fetch_one("idempotency.get", scope=scope, key=key)
        if row is not None:
            if row["body_hash"] != body_hash:
                raise KeyReused(f"idempotency key {key!r} came with another body before")
            return str(row["response"])
        response = await answer()
        await self.write(
            "idempotency.add",
            scope=scope,
            key=key,
            body_hash=body_hash,
            response=response,
            created_at=self.now_us,
        )
        return response

    async def send_mail(
        self,
        *,
        to: Sequence[str],
        subject: str,
        text: str,
        html: str | None = None,
        inline: Sequence[InlineImage] = (),
        message_id: str | None = None,
    ) -> str:
        """Write a mail; the primary sends it after the commit. Returns its Message-ID.

        `to` are addresses, `user@host` or `Name <user@host>`. With a `message_id` (`<id@host>`)
        that exists already nothing is written: a caller that derives it from its work (hotel and
        day, for example) sends that mail once, however often it runs. `inline` are pictures that
        the HTML shows. Raises: PermanentError when `to` is empty or one string, or a picture has no
        plain name and type.
        """
        if isinstance(to, str) or not to:  # a string is a sequence of strings to a type checker
            raise PermanentError("a mail needs a list of addresses to go to")
        if message_id is not None:
            check_key(message_id, "a Message-ID")
        if inline:
            check_inline_images(inline)
        message_id = message_id or f"<{new_id(self.now_us)}@{socket.gethostname()}>"
        written = await self.execute(
            "mail.add",
            message_id=message_id,
            to=_encode(list(to)).decode(),
            subject=subject,
            text=text,
            html=html,
            inline=_encode(inline).decode() if inline else None,
            next_at=self.now_us,
            request_id=log.request_id.get(),
            created_at=self.now_us,
        )
        if written:
            self.topics.add(MAIL_TOPIC)
        return message_id

    def notify(self, topic: str) -> None:
        """Wake the waiters of a topic, in every process, after the commit."""
        self.topics.add(topic)


def wrong_count(name: str, changed: int, expected: int) -> Conflict:
    """The error for a statement that did not change as many rows as its `rows=` says."""
    return Conflict(f"{name} changed {changed} rows instead of {expected}", constraint="rows")


class UnitMisuse(CordataError):
    """A unit of work did something that a unit must not do."""

    code = "unit_misuse"
    shown = True


def foreign_await(coroutine: Any) -> UnitMisuse:
    """The error for a unit that stands at something other than its tx; call it before it closes."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if not frame.f_globals.get("__name__", "").startswith("cordata."):  # a wrapper of ours
            frames.append(frame)
        coroutine = coroutine.cr_await
    name = frames[0].f_code.co_qualname if frames else type(coroutine).__qualname__
    places = [f"{f.f_code.co_filename.rpartition('/')[2]}:{f.f_lineno}" for f in frames]
    return UnitMisuse(
        f"unit {name!r} awaited something other than its tx at {' < '.join(reversed(places))}",
        hint="a unit awaits nothing but its tx; use transaction() around other awaits",
    )


def new_id(now_us: int) -> str:
    """32 hex digits that grow with time (UUID version 7): an index on them is appended to."""
    tail = os.urandom(10)
    head = (now_us // 1000).to_bytes(6, "big")
    return (head + bytes((0x70 | tail[0] & 0x0F, tail[1], 0x80 | tail[2] & 0x3F)) + tail[3:]).hex()
