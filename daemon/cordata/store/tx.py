"""Tx: the interface of a unit of work, the same on every store."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from cordata import clock, log, trace
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

#: Units that share one commit at most.
MAX_BATCH = 256
#: The statement that writes an event and its messages. On PostgreSQL its count is that of messages.
PUBLISH = "queue.publish"
#: Wakes workers: messages of older events can be claimed (again).
CLAIMABLE_TOPIC = "message"
#: Wakes the mail service.
MAIL_TOPIC = "mail"

#: The next step when a table or column is missing.
MISSING_HINT = (
    "is it in a migration of the package that app.migrations() names? `cordata migrate --check`"
    " lists what is pending"
)

#: Event types that this process has published, at most 1,000: services/unhandled_event.py warns
#: about those without a group.
published_types: set[str] = set()

_encode = msgspec.json.Encoder(decimal_format="string").encode


def published_topic(type: str) -> str:
    """Wakes workers with a handler of the type: an event was published."""
    return f"queue {type}"


def without_published(topics: Iterable[str]) -> set[str]:
    """The topics of a unit whose events no consumer group gets."""
    return {topic for topic in topics if not topic.startswith(published_topic(""))}


class Row(Protocol):
    """A row: `row["column"]`, and `dict(row)`."""

    def __getitem__(self, key: str, /) -> Any: ...

    def keys(self) -> Iterable[str]:
        """The names of the columns."""
        ...


class Tx(ABC):
    """A unit's access to the store, valid until the unit ends.

    A statement that fails ends the unit: every later call raises the same error again, and the
    unit fails with it, even if it caught the first one. (PostgreSQL works this way. To learn
    whether a row exists already, write `ON CONFLICT DO NOTHING` and check the number of rows.)

    `rows` (a number) and `lock` (a bool) are options: no parameter of a statement has these names.
    They are typed Any, since a mapping of parameters passed with ** may contain any type.
    """

    __slots__ = ("failed", "now_us", "topics")

    def __init__(self, now_us: int) -> None:
        #: Topics to notify after the commit.
        self.topics: set[str] = set()
        #: The error of the statement that ended the unit.
        self.failed: CordataError | None = None
        #: One wall time for the whole unit, in microseconds since the epoch.
        self.now_us = now_us

    @abstractmethod
    async def execute(self, name: str, /, **params: object) -> int:
        """Run a statement. Returns how many rows changed. Raises: Conflict, StoreUnavailable."""

    @abstractmethod
    async def write(self, name: str, /, *, rows: Any = None, **params: object) -> None:
        """Run a statement whose result the unit does not need.

        `rows`: how many rows it must change; any other number ends the unit with a Conflict before
        anything is committed.

        An error may be raised later, at the end of the unit at the latest; the unit fails with it.
        On PostgreSQL the statement costs no extra round trip.
        """

    @abstractmethod
    async def insert(self, table: str, /, **columns: object) -> None:
        """Add one row to a table; columns that are not given get their defaults.

        As `write`: errors may be raised later. A key that exists already is a Conflict. On
        PostgreSQL the rows that batched units add to one table are sent as one statement.
        """

    async def fetch_one(self, name: str, /, *, lock: Any = False, **params: object) -> Row | None:
        """The first row of a query, or None; as `fetch_all`."""
        rows = await self.fetch_all(name, lock=lock, **params)
        return rows[0] if rows else None

    @abstractmethod
    async def fetch_all(self, name: str, /, *, lock: Any = False, **params: object) -> list[Row]:
        """All rows of a query. A statement with RETURNING counts as a query.

        `lock`: no other unit changes or locks the rows found until this unit has ended. On
        PostgreSQL FOR UPDATE is appended, unless the query has the line `-- newest` in its file
        (then it must lock itself); on SQLite units run one at a time anyway.
        """

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
        of the current request, `traceparent` its trace if that began elsewhere. Groups with
        `App.on(key=True)` handle events of one `key` one at a time, in the order in which they were
        written.

        The event is due at once, or `delay_s` seconds after `now_us`, or at the time `at` (aware
        datetime, or microseconds since the epoch; a time in the past means now). Until then it
        costs nothing and delays no other event. Of the messages that are due, the highest
        `priority` (a 32-bit number) is handled first, then the oldest. A priority below 0 is for
        background work: it uses at most a quarter of a group's slots. Groups with
        `App.on(key=True)` ignore the priority.

        Returns the event id. Raises: Conflict when `event_id` exists already; TypeError when
        msgspec cannot write the payload; PermanentError when the priority is not a 32-bit number,
        the type is empty or longer than 200 characters, the key is longer than 1,024 bytes, one of
        them has a NUL character, or both `at` and `delay_s` are given; ValueError for a naive
        datetime.
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
        if traceparent := trace.carried(request_id):
            heads.setdefault(trace.HEADER, traceparent)
        may_have_messages = await self._write_event(
            event_id=event_id,
            type=type,
            key=key,
            priority=priority,
            payload=_encode(payload).decode(),
            headers=_encode(heads).decode() if heads else "{}",
            due_at=self._due_at(at, delay_s),
            created_at=self.now_us,
        )
        if may_have_messages:
            self.topics.add(published_topic(type))
        if type not in published_types and len(published_types) < 1000:
            published_types.add(type)
        return event_id

    async def _write_event(self, **event: object) -> bool:
        """Write a row of `event`, and its messages. False: there are none, so wake nobody."""
        await self.write(PUBLISH, **event)
        return True

    def _due_at(self, at: datetime | int | None, delay_s: float) -> int:
        if at is None:
            return self.now_us + max(int(delay_s * 1_000_000), 0)
        if delay_s:
            raise PermanentError("publish(): either at or delay_s")
        return max(clock.to_us(at) if isinstance(at, datetime) else at, self.now_us)

    async def remembered(
        self, scope: str, key: str, answer: Callable[[], Awaitable[str]], *, body_hash: str
    ) -> str:
        """The response stored under an idempotency key. If there is none: call `answer()`, store
        its response, and return it.

        `answer` runs within this unit and awaits nothing but its tx: its writes and its response
        are stored together or not at all, so a repeated request has its effect once and gets the
        same response. `scope` separates the keys of different callers. `body_hash` is the hash of
        the request's body: a key must not be used for another body. A key is stored for
        `[engine] retention_s`.

        Raises: PermanentError when scope or key have more than 1,024 bytes or a NUL character;
        KeyReused when the key was used with another body; what `answer` raises (then nothing is
        stored). When another unit stores the key at the same moment, `run` runs this unit again,
        and it finds the stored response; in a `transaction()` that is a Conflict.
        """
        check_key(scope, "the scope of an idempotency key")
        check_key(key, "an idempotency key")
        row = await self.fetch_one("idempotency.get", scope=scope, key=key)
        if row is not None:
            if row["body_hash"] != body_hash:
                raise KeyReused(f"idempotency key {key!r} was used with another body before")
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

        `to` are addresses, `user@host` or `Name <user@host>`. If a mail with this `message_id`
        (`<id@host>`) exists already, nothing is written: a caller that makes it from its task
        (hotel and day, for example) sends the mail once, even if it runs again. `inline` are the
        images of the HTML. Raises: PermanentError when `to` is empty or a string, or an image has
        no valid name or type.
        """
        if isinstance(to, str) or not to:  # a type checker accepts a str as Sequence[str]
            raise PermanentError("a mail needs a list of addresses of its recipients")
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
        """Wake the waiters of a topic, in every process, after the commit.

        Topics that begin with `queue ` are those of published events: do not use them.
        """
        self.topics.add(topic)


def wrong_count(name: str, changed: int, expected: int) -> Conflict:
    """The error for a statement that did not change as many rows as its `rows=` says."""
    return Conflict(f"{name} changed {changed} rows instead of {expected}", constraint="rows")


class UnitMisuse(CordataError):
    """A unit of work did something that a unit must not do."""

    code = "unit_misuse"
    shown = True


def writes_in_read(name: str) -> UnitMisuse:
    """The error for a statement that writes in a read."""
    return UnitMisuse(
        f"query {name!r} writes, but a read cannot",
        hint="pass the unit to run() instead of read()",
    )


def foreign_await(coroutine: Any) -> UnitMisuse:
    """The error for a unit that awaits something other than its tx; call it before closing it."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if not frame.f_globals.get("__name__", "").startswith("cordata."):  # not our own wrappers
            frames.append(frame)
        coroutine = coroutine.cr_await
    name = frames[0].f_code.co_qualname if frames else type(coroutine).__qualname__
    places = [f"{f.f_code.co_filename.rpartition('/')[2]}:{f.f_lineno}" for f in frames]
    return UnitMisuse(
        f"unit {name!r} awaited something other than its tx at {' < '.join(reversed(places))}",
        hint="a unit awaits nothing but its tx; use transaction() around other awaits",
    )


def new_id(now_us: int) -> str:
    """32 hex digits that grow with time (UUID version 7), so that an index grows at its end."""
    tail = os.urandom(10)
    head = (now_us // 1000).to_bytes(6, "big")
    return (head + bytes((0x70 | tail[0] & 0x0F, tail[1], 0x80 | tail[2] & 0x3F)) + tail[3:]).hex()
