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
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from urllib.parse import unquote_plus

from alpinehub.people.finding import Customer
from cordata import Row, Store, Tx

#: Rows of one look: versions are short, submissions may be 256 KiB each.
VERSIONS, INBOX, MAILS = 1000, 100, 50
#: What waits to be interpreted, by the program or by a person.
_OPEN = ("received", "review")
#: The last id of the next page, None: there is none; and its rows.
Look = Callable[..., Awaitable[tuple[int | None, list[Row]]]]
_NUMBER = re.compile(r"\+?[0-9][0-9 ()./\-\u00a0]{4,24}[0-9]")
#: Shorter ones are found in what is no telephone number.
_MIN_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Mark:
    """By what somebody is known in a text."""

    hotel_id: int
    #: Lower case; "" is none.
    email: str
    #: Digits, in every way it is known to be written.
    numbers: frozenset[str]
    #: First and last name, lower case; "" unless both are known.
    name: str

    def is_named_in(self, text: str) -> bool:
        """Whether a text (lower case) holds his address, and not one that only contains it."""
        return bool(self.email) and self.email in text and bool(_whole(self.email).search(text))

    def is_in(self, text: str) -> bool:
        """Whether a text (lower case) holds his address or, without any address, his number."""
        return self.is_named_in(text) or _any_number_in(text, [self])

    def may_be_in(self, text: str) -> bool:
        """Whether there is anything to hide in a text (lower case); much faster than to hide it."""
        return any(known in text for known in (self.email, self.name, *self.numbers) if known)

    def hide(self, text: str) -> str:
        """The text without him."""
        if self.email:
            text = _whole(self.email).sub("…", text)
        for known in (self.name, *self.numbers):
            if known:
                text = re.sub(rf"\+?{re.escape(known)}", "…", text, flags=re.IGNORECASE)
        return text


def _any_number_in(text: str, marks: Sequence[Mark]) -> bool:
    """Whether a text without any address holds a number of one of them."""
    numbers = {number for mark in marks for number in mark.numbers}
    return bool(numbers) and "@" not in text and not numbers.isdisjoint(_read(text))


@lru_cache(maxsize=256)
def _whole(email: str) -> re.Pattern[str]:
    """The address between what cannot be part of one."""
    around = r"(?<![\w.+%-])", r"(?![\w-]|\.\w)"
    return re.compile(re.escape(email).join(around), re.IGNORECASE)


def mark_of(customer: Customer) -> Mark:
    """The mark of a row of `customer`."""
    written = (customer["phone"] or "", customer["phone_e164"] or "")
    numbers = frozenset(d for text in written if len(d := _digits(text)) >= _MIN_DIGITS)
    first, last = customer["first_name"], customer["last_name"]
    name = f"{first} {last}".lower() if first and last else ""
    return Mark(customer["hotel_id"], customer["email"] or "", numbers, name)


@dataclass(slots=True)
class Traces:
    """What was found."""

    #: Ids.
    inbox: list[int] = field(default_factory=list)
    #: Reservation and version.
    versions: list[tuple[str, int]] = field(default_factory=list)
    #: Id, subject, text and HTML, as they are to be.
    mails: list[tuple[int, str, str, str | None]] = field(default_factory=list)


async def find_traces(store: Store, marks: Sequence[Mark], *, spare_open: bool = False) -> Traces:
    """Look for all of them. `spare_open`: not among submissions that nobody interpreted yet."""
    found = Traces()
    async for rows in _pages(store, _look_at_inbox):
        looked = [row for row in rows if not (spare_open and row["state"] in _OPEN)]
        found.inbox += await asyncio.to_thread(_his_inbox, looked, marks)
    async for rows in _pages(store, _look_at_versions):
        found.versions += await asyncio.to_thread(_his_versions, rows, marks)
    async for rows in _pages(store, _look_at_mails):
        found.mails += await asyncio.to_thread(_his_mails, rows, marks)
    return found


def _his_inbox(rows: Sequence[Row], marks: Sequence[Mark]) -> list[int]:
    """Another's request is his only where it names his address: two may share a number."""
    found = []
    for row in rows:
        text = _readable(bytes(row["body"]))
        mine = [mark for mark in marks if mark.hotel_id == row["hotel_id"]]
        if any(mark.is_named_in(text) for mark in mine) or (
            row["reservation_id"] is None and _any_number_in(text, mine)
        ):
            found.append(row["id"])
    return found


def _his_versions(rows: Sequence[Row], marks: Sequence[Mark]) -> list[tuple[str, int]]:
    found = []
    for row in rows:
        text = row["data"].lower()
        if any(m.hotel_id == row["hotel_id"] and m.is_named_in(text) for m in marks):
            found.append((row["reservation_id"], row["version"]))
    return found


def _his_mails(
    rows: Sequence[Row], marks: Sequence[Mark]
) -> list[tuple[int, str, str, str | None]]:
    found = []
    for row in rows:
        before = (row["subject"], row["text"], row["html"])
        after = tuple(_hidden(text, marks) for text in before)
        if after != before:
            found.append((row["id"], after[0] or "", after[1] or "", after[2]))
    return found


def _hidden(text: str | None, marks: Sequence[Mark]) -> str | None:
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


_look_at_inbox = partial(_look, window="people_inbox_range", scan="people_scan_inbox", limit=INBOX)
_look_at_versions = partial(
    _look, window="people_version_range", scan="people_scan_versions", limit=VERSIONS
)


async def _look_at_mails(tx: Tx, after: int) -> tuple[int | None, list[Row]]:
    rows = await tx.fetch_all("people_mails", after=after, limit=MAILS)
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


def _read(text: str) -> set[str]:
    """The telephone numbers of a text, as digits."""
    found = {_digits(match[0]) for match in _NUMBER.finditer(text)}
    return found | {digits.removeprefix("00") for digits in found}


def _digits(text: str) -> str:
    return "".join(c for c in text if c in "0123456789")
