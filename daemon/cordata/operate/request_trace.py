"""What store and journal know of one request: its events, what each group did with them, its mails,
and its log lines, in the order of time. No payload, key, recipient or error text is read out.

    id ──> an event's id: its request, else its trace ──┐
      └──> a request id, or the trace id of a traceparent ──> events whose headers have it
                                                               └──> messages, mails, log lines

Events are found by reading the headers of the last days, in short reads: an index would cost each
request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cordata import trace
from cordata.clock import to_us
from cordata.core.message_state import read_failures
from cordata.store import Row, Store, Tx
from cordata.systemd.journal_reader import JournalEntry, JournalFilter, JournalReader

#: Events that one read examines.
_WINDOW = 5000
#: Events and log lines at most.
MOST = 1000
_EVER = 2**63 - 1
#: How long before a known event its request may have begun.
_EARLIER_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened, or that is still to come."""

    #: Microseconds since the epoch; None: it waits, and nothing says until when.
    at: int | None
    #: published, appended, failed, handled, dead, ready, scheduled, claimed, relayed; mail and its
    #: state; log.
    step: str
    event_id: str | None = None
    #: Of an event.
    type: str | None = None
    group: str | None = None
    #: The number of the attempt, or how many there were.
    attempt: int | None = None
    #: The type of the error.
    error: str | None = None
    mail: int | None = None
    #: Of a log line.
    unit: str | None = None
    level: str | None = None
    message: str | None = None

    def text(self) -> str:
        """The step in words."""
        if self.message is not None:
            return f"{self.unit} {(self.level or '').upper()} {self.message.partition(chr(10))[0]}"
        if self.mail is not None:
            return f"mail {self.mail}"
        if self.group is None:
            return " ".join(filter(None, (self.type, self.event_id)))
        words = [self.group]
        if self.attempt:
            words.append(f"attempt {self.attempt}")
        if self.error:
            words.append(self.error)
        return ", ".join(words)


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """All that is known of it."""

    request_ids: list[str] = field(default_factory=list)
    trace_ids: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    #: There is more than MOST.
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    id: str
    #: Of an event of the event store, its category.
    category: str | None
    type: str
    created_at: int
    request_id: str
    trace_id: str


async def find_in_store(store: Store, id_: str, *, since: int) -> RequestTrace:
    """What the store knows of the request with this id or trace id, or of that of this event.

    `since`: microseconds since the epoch; nothing older is looked for, but with an event's id.
    """
    wanted = trace.trace_id_in(id_) or id_
    row = await store.read(lambda tx: tx.fetch_one("trace.event", event_id=wanted))
    known: list[_Event] = []
    if row is not None:
        known = [_event(row)]
        wanted = known[0].request_id or known[0].trace_id
        since = min(since, known[0].created_at - _EARLIER_US)
    events = {one.id: one for one in known}
    for one in await _search(store, wanted, since, stored=False):
        events.setdefault(one.id, one)
    appended = await _search(store, wanted, since, stored=True)
    found = sorted((*events.values(), *appended), key=lambda one: one.created_at)
    result = RequestTrace(more=len(events) > MOST or len(appended) > MOST)
    del found[MOST:]
    ids = dict.fromkeys(one.request_id for one in found if one.request_id)
    result.request_ids = list(ids) or ([] if known else [wanted])
    result.trace_ids = list(dict.fromkeys(one.trace_id for one in found))
    for one in found:
        step = "published" if one.category is None else "appended"
        result.steps.append(
            Step(at=one.created_at, step=step, event_id=one.id, type=one.type, group=None)
        )
    event_ids = [one.id for one in found if one.category is None]
    params = {"event_ids": json.dumps(event_ids)}
    for row in await store.read(lambda tx: tx.fetch_all("inspection.groups", **params)):
        result.steps += _of_message(row)
    mails = {"request_ids": json.dumps(result.request_ids), "since": since}
    for row in await store.read(lambda tx: tx.fetch_all("trace.mails", **mails)):
        result.steps += _of_mail(row)
    result.steps.sort(key=_order)
    return result


def find_in_journal(reader: JournalReader, id_: str, found: RequestTrace, *, since: int) -> None:
    """Add the log lines of this host to what the store knows."""
    wanted = trace.trace_id_in(id_) or id_
    event_ids = [one.event_id for one in found.steps if one.event_id]
    reader.select(
        JournalFilter(
            any_of={
                "REQUEST_ID": list(dict.fromkeys([wanted, *found.request_ids])),
                "TRACE_ID": [wanted],
                "EVENT_ID": list(dict.fromkeys([wanted, *event_ids])),
            }
        )
    )
    first = min((one.at for one in found.steps if one.at is not None), default=since)
    lines: list[JournalEntry] = []
    for entry in reader.since(min(first, since)):
        lines.append(entry)
        if len(lines) > MOST:
            found.more = True
            break
    for entry in lines[:MOST]:
        found.steps.append(
            Step(
                at=to_us(entry.at),
                step="log",
                unit=entry.unit,
                level=entry.level,
                message=entry.message,
            )
        )
        if entry.request_id and entry.request_id not in found.request_ids:
            found.request_ids.append(entry.request_id)
    found.steps.sort(key=_order)


async def _search(store: Store, wanted: str, since: int, *, stored: bool) -> list[_Event]:
    """The events that belong to a request id or trace id, the oldest first; MOST + 1 at most."""
    window, query = (
        ("trace.stored_below", "trace.stored") if stored else ("inspection.below", "trace.events")
    )
    text = f"%{_escaped(wanted)}%"
    found: list[_Event] = []
    below = _EVER
    while len(found) <= MOST:
        page = await _window(store, window, below)
        if page is None or page[1] < since:
            break
        floor, params = page[0], {"after": below, "floor": page[0], "text": text}

        async def unit(tx: Tx, params: Mapping[str, object] = params) -> list[Row]:
            return await tx.fetch_all(query, **params)

        rows = map(_event, await store.read(unit))
        found += [
            one
            for one in rows
            if one.created_at >= since and wanted in (one.request_id, one.trace_id)
        ]
        below = floor
    return found


async def _window(store: Store, query: str, below: int) -> tuple[int, int] | None:
    """The lowest position of the next window, and when its latest event was written."""
    row = await store.read(lambda tx: tx.fetch_one(query, after=below, limit=_WINDOW))
    assert row is not None
    return None if row["position"] is None else (row["position"], row["latest"])


def _escaped(text: str) -> str:
    return "".join(f"!{one}" if one in "!%_" else one for one in text)


def _event(row: Row) -> _Event:
    try:
        heads = msgspec.json.decode(row["headers"], type=dict[str, Any])
    except msgspec.MsgspecError:  # the row is damaged
        heads = {}
    category = row["category"] if "category" in row.keys() else None
    id_ = row["id"] if category is None else f"{category}:{row['position']}"
    request_id = str(heads.get("request_id") or "")
    parent = trace.parse(heads.get(trace.HEADER))
    return _Event(
        id=id_,
        category=category,
        type=row["type"],
        created_at=row["created_at"],
        request_id=request_id,
        trace_id=parent[0] if parent else trace.trace_id_of(request_id or id_),
    )


def _of_message(row: Row) -> Iterable[Step]:
    """The failed attempts at a message, and its state."""
    about = {"event_id": row["event_id"], "group": row["group"]}
    for failure in read_failures(row["history"]):
        error = str(failure.get("error")).partition(":")[0]
        yield Step(
            at=failure.get("at"),
            step="failed",
            **about,
            attempt=failure.get("attempt"),
            error=error,
        )
    state = row["state"]
    at = {"handled": row["handled_at"], "dead": row["dead_at"], "scheduled": row["next_at"]}
    yield Step(at=at.get(state), step=state, **about, attempt=row["attempts"])


def _of_mail(row: Row) -> Iterable[Step]:
    """When a mail was written, and its state."""
    yield Step(at=row["created_at"], step="mail", mail=row["id"])
    state = row["state"]
    at = {"sent": row["sent_at"], "pending": row["next_at"]}.get(state)
    yield Step(at=at, step=f"mail {state}", mail=row["id"], attempt=row["attempts"])


def _order(step: Step) -> tuple[bool, int]:
    return step.at is None, step.at or 0


def as_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The steps as rows of a table, with the seconds since the first."""
    first = next((step.at for step in steps if step.at is not None), 0)
    return [
        {
            "at": step.at,
            "after": None if step.at is None else f"+{(step.at - first) / 1e6:.3f} s",
            "step": step.step,
            "what": step.text(),
        }
        for step in steps
    ]
