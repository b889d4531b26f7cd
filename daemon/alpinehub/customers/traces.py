"""What is left of a customer where no reservation of his leads to it.

    inbox .......... what could not be mapped, or was rejected; what belongs to another's request
    versions ....... older ones of a request that is another's now: he corrected his address
    mails .......... as long as the runtime keeps them

All of each table is looked through, a page at a time: no lock is held, and what a page says is read
in a thread, for the event loop has others to serve.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote_plus

from alpinehub.customers.matcher import GroupMatcher, PersonMatcher, group_matchers
from cordata import Row, Store, Tx

#: Rows of one look: versions are short, submissions may be 256 KiB each.
VERSIONS, INBOX, MAILS = 1000, 100, 50
#: What waits to be interpreted, by the program or by a person.
_OPEN = ("received", "review")
#: The last id of the next page, None: there is none; and its rows.
Look = Callable[..., Awaitable[tuple[int | None, list[Row]]]]


@dataclass(slots=True)
class Traces:
    """What was found."""

    #: Ids.
    inbox: list[int] = field(default_factory=list)
    #: Reservation and version.
    versions: list[tuple[str, int]] = field(default_factory=list)
    #: Id, subject, text and HTML, as they are to be.
    mails: list[tuple[int, str, str, str | None]] = field(default_factory=list)


async def find_traces(
    store: Store, marks: Sequence[PersonMatcher], *, spare_open: bool = False
) -> Traces:
    """Look for all of them. `spare_open`: not among submissions that nobody interpreted yet."""
    found, crowds = Traces(), group_matchers(marks)
    async for rows in _pages(store, _look_at_inbox):
        looked = [row for row in rows if not (spare_open and row["state"] in _OPEN)]
        found.inbox += await asyncio.to_thread(_his_inbox, looked, crowds)
    async for rows in _pages(store, _look_at_versions):
        found.versions += await asyncio.to_thread(_his_versions, rows, crowds)
    async for rows in _pages(store, _look_at_mails):
        found.mails += await asyncio.to_thread(_his_mails, rows, marks)
    return found


def _his_inbox(rows: Sequence[Row], crowds: Mapping[int, GroupMatcher]) -> list[int]:
    """Another's request is his only where it names his address: two may share a number."""
    found = []
    for row in rows:
        if (crowd := crowds.get(row["hotel_id"])) is None:
            continue
        text = _readable(bytes(row["body"]))
        if crowd.is_named_in(text) or (
            row["reservation_id"] is None and crowd.is_numbered_in(text)
        ):
            found.append(row["id"])
    return found


def _his_versions(rows: Sequence[Row], crowds: Mapping[int, GroupMatcher]) -> list[tuple[str, int]]:
    return [
        (row["reservation_id"], row["version"])
        for row in rows
        if (crowd := crowds.get(row["hotel_id"])) and crowd.is_named_in(row["data"].lower())
    ]


def _his_mails(
    rows: Sequence[Row], marks: Sequence[PersonMatcher]
) -> list[tuple[int, str, str, str | None]]:
    found = []
    for row in rows:
        before = (row["subject"], row["text"], row["html"])
        after = tuple(_hidden(text, marks) for text in before)
        if after != before:
            found.append((row["id"], after[0] or "", after[1] or "", after[2]))
    return found


def _hidden(text: str | None, marks: Sequence[PersonMatcher]) -> str | None:
    if not text:
        return text
    lower = text.lower()
    for mark in marks:
        if mark.may_be_in(lower):
            text = mark.hide(text)
    return text


async def _pages(store: Store, look: Look) -> AsyncIterator[list[Row]]:
    after: int | None = 0
    while after is not None:
        after, rows = await store.read(partial(look, after=after))
        yield rows


async def _look(
    tx: Tx, after: int, *, window: str, scan: str, limit: int
) -> tuple[int | None, list[Row]]:
    """`window` and `scan`: the queries of the end of the next page, and of its rows."""
    end = await tx.fetch_one(window, after=after, limit=limit)
    if end is None or end["last"] is None:
        return None, []
    last = int(end["last"])
    return last, await tx.fetch_all(scan, after=after, last=last)


_look_at_inbox = partial(
    _look, window="customer_inbox_range", scan="customer_scan_inbox", limit=INBOX
)
_look_at_versions = partial(
    _look, window="customer_version_range", scan="customer_scan_versions", limit=VERSIONS
)


async def _look_at_mails(tx: Tx, after: int) -> tuple[int | None, list[Row]]:
    rows = await tx.fetch_all("customer_mails", after=after, limit=MAILS)
    return (int(rows[-1]["id"]) if rows else None), rows


def _readable(body: bytes) -> str:
    """What a body says, lower case: escapes of JSON and of forms are read, where there are any."""
    text = body.decode("utf-8", "replace")
    if "\\" in text:
        try:
            return json.dumps(json.loads(text), ensure_ascii=False).lower()
        except (ValueError, RecursionError):
            pass
    if "%" in text:
        text = unquote_plus(text)
    return text.lower()
