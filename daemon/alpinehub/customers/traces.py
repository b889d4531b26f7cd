"""Traces of a customer: what is left of them where none of their requests leads to it.

    inbox .......... what could not be mapped, or was rejected; what belongs to another's request
    versions ....... older ones of a request that is another's now: they corrected their address
    mails .......... as long as the runtime keeps them

All of each table is looked through, a page at a time: no lock is held, and the text of a page is
searched in a thread, for the event loop has others to serve. What a text holds is looked up among
all who are searched for (GroupMatcher), so that it costs the same for one as for a thousand.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from unicodedata import decimal
from urllib.parse import unquote_plus

from alpinehub.customers.search import Customer
from cordata import Row, Store, Tx

_NUMBER = re.compile(r"\+?[0-9][0-9 ()./\-\u00a0]{4,24}[0-9]")
#: Shorter ones are found in what is no telephone number.
_MIN_DIGITS = 7
#: What may be an address, from each place where one may begin: its end is that of `_whole`.
_ADDRESS = re.compile(r"(?<![\w.+%-])(?=([\w.+%-]++@[\w-]++(?:\.\w[\w-]*+)*+))")


@dataclass(frozen=True, slots=True)
class PersonMatcher:
    """What identifies one customer in a text."""

    hotel_id: int
    #: Lower case; "" is none.
    email: str
    #: Digits, in every way it is known to be written.
    numbers: frozenset[str]
    #: First and last name, lower case; "" unless both are known.
    name: str

    def is_named_in(self, text: str) -> bool:
        """Whether a text (lower case) holds the address, and not one that only contains it."""
        return bool(self.email) and self.email in text and bool(_whole(self.email).search(text))

    def is_in(self, text: str) -> bool:
        """Whether a text (lower case) holds the address or, without any address, a number."""
        return self.is_named_in(text) or _any_number_in(text, self.numbers)

    def may_be_in(self, text: str) -> bool:
        """Whether there is anything to hide in a text (lower case); much faster than to hide it."""
        return any(known in text for known in (self.email, self.name, *self.numbers) if known)

    def hide(self, text: str) -> str:
        """The text without them."""
        if self.email:
            text = _whole(self.email).sub("…", text)
        for known in (self.name, *self.numbers):
            if known:
                text = re.sub(rf"\+?{re.escape(known)}", "…", text, flags=re.IGNORECASE)
        return text


def _any_number_in(text: str, numbers: frozenset[str]) -> bool:
    """Whether a text without any address holds one of the numbers."""
    return bool(numbers) and "@" not in text and not numbers.isdisjoint(_read(text))


@dataclass(frozen=True, slots=True)
class GroupMatcher:
    """All customers of one hotel that are searched for."""

    emails: frozenset[str]
    #: Those whose address has a character that `_ADDRESS` does not know: tried one by one.
    odd: tuple[PersonMatcher, ...]
    numbers: frozenset[str]

    def is_named_in(self, text: str) -> bool:
        """Whether `PersonMatcher.is_named_in` is true of one of them."""
        if self.emails and "@" in text:
            if any(found[1] in self.emails for found in _ADDRESS.finditer(text)):
                return True
        return any(matcher.is_named_in(text) for matcher in self.odd)

    def is_numbered_in(self, text: str) -> bool:
        """Whether a text without any address holds a number of one of them."""
        return _any_number_in(text, self.numbers)


def group_matchers(matchers: Sequence[PersonMatcher]) -> Mapping[int, GroupMatcher]:
    """By hotel."""
    by_hotel: defaultdict[int, list[PersonMatcher]] = defaultdict(list)
    for matcher in matchers:
        by_hotel[matcher.hotel_id].append(matcher)
    return {hotel_id: _group(ones) for hotel_id, ones in by_hotel.items()}


def _group(matchers: Sequence[PersonMatcher]) -> GroupMatcher:
    odd = tuple(matcher for matcher in matchers if matcher.email and not _is_plain(matcher.email))
    return GroupMatcher(
        emails=frozenset(matcher.email for matcher in matchers if matcher.email)
        - {matcher.email for matcher in odd},
        odd=odd,
        numbers=frozenset(number for matcher in matchers for number in matcher.numbers),
    )


def _is_plain(email: str) -> bool:
    found = _ADDRESS.match(email)
    return found is not None and found[1] == email


@lru_cache(maxsize=256)
def _whole(email: str) -> re.Pattern[str]:
    """The address between what cannot be part of one."""
    around = r"(?<![\w.+%-])", r"(?![\w-]|\.\w)"
    return re.compile(re.escape(email).join(around), re.IGNORECASE)


def matcher_of(customer: Customer) -> PersonMatcher:
    """The matcher of a row of `customer`."""
    written = (customer["phone"] or "", customer["phone_e164"] or "")
    numbers = frozenset(d for text in written if len(d := _digits(text)) >= _MIN_DIGITS)
    first, last = customer["first_name"], customer["last_name"]
    name = f"{first} {last}".lower() if first and last else ""
    return PersonMatcher(customer["hotel_id"], customer["email"] or "", numbers, name)


def _read(text: str) -> set[str]:
    """The telephone numbers of a text, as digits; of two with a "/" between each."""
    if not text.isascii():
        text = "".join(str(decimal(c)) if c.isdecimal() else c for c in text)
    written = [match[0] for match in _NUMBER.finditer(text)]
    found = {_digits(part) for one in written for part in (one, *one.split("/"))}
    return found | {digits.removeprefix("00") for digits in found}


def _digits(text: str) -> str:
    return "".join(c for c in text if c in "0123456789")


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
    store: Store, matchers: Sequence[PersonMatcher], *, spare_open: bool = False
) -> Traces:
    """Look for all of them. `spare_open`: not in submissions that are not interpreted yet."""
    found, groups = Traces(), group_matchers(matchers)
    async for rows in _pages(store, _look_at_inbox):
        looked = [row for row in rows if not (spare_open and row["state"] in _OPEN)]
        found.inbox += await asyncio.to_thread(_find_in_inbox, looked, groups)
    async for rows in _pages(store, _look_at_versions):
        found.versions += await asyncio.to_thread(_find_in_versions, rows, groups)
    async for rows in _pages(store, _look_at_mails):
        found.mails += await asyncio.to_thread(_find_in_mails, rows, matchers)
    return found


def _find_in_inbox(rows: Sequence[Row], groups: Mapping[int, GroupMatcher]) -> list[int]:
    """Another's request is theirs only where it names their address: two may share a number."""
    found = []
    for row in rows:
        if (group := groups.get(row["hotel_id"])) is None:
            continue
        text = _readable(bytes(row["body"]))
        if group.is_named_in(text) or (
            row["reservation_id"] is None and group.is_numbered_in(text)
        ):
            found.append(row["id"])
    return found


def _find_in_versions(
    rows: Sequence[Row], groups: Mapping[int, GroupMatcher]
) -> list[tuple[str, int]]:
    return [
        (row["reservation_id"], row["version"])
        for row in rows
        if (group := groups.get(row["hotel_id"])) and group.is_named_in(row["data"].lower())
    ]


def _find_in_mails(
    rows: Sequence[Row], matchers: Sequence[PersonMatcher]
) -> list[tuple[int, str, str, str | None]]:
    found = []
    for row in rows:
        before = (row["subject"], row["text"], row["html"])
        after = tuple(_hidden(text, matchers) for text in before)
        if after != before:
            found.append((row["id"], after[0] or "", after[1] or "", after[2]))
    return found


def _hidden(text: str | None, matchers: Sequence[PersonMatcher]) -> str | None:
    if not text:
        return text
    lower = text.lower()
    for matcher in matchers:
        if matcher.may_be_in(lower):
            text = matcher.hide(text)
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
