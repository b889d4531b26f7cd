"""Traces of a customer: personal data in rows that do not belong to a request of theirs.

    inbox .......... submissions not mapped, or rejected, or of another customer's request
    versions ....... older versions of a request that belongs to another customer now, because the
                     guest corrected the e-mail address
    mails .......... as long as the runtime keeps them

Each table is read completely, a page at a time. No lock is held, and a page is searched in a
thread, so that the event loop is not blocked. The addresses and numbers of an inbox row or a
version are looked up among those of all customers searched for (GroupMatcher): a thousand cost the
same as one. A mail is searched for each person; many are first looked up by the first characters of
what is known of them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from unicodedata import decimal
from urllib.parse import unquote, unquote_plus

from msgspec import Struct

from alpinehub.customers.phone import digits_of
from alpinehub.customers.search import Customer
from cordata import Row, Store, Tx

_NUMBER = re.compile(r"\+?[0-9][0-9 ()./\-\u00a0]{4,24}[0-9]")
#: Shorter ones would match other numbers, too.
_MIN_DIGITS = 7
#: Number of first characters by which many persons are looked up in a mail. Those with a shorter
#: name are searched for in every mail.
_HEAD = 5
#: From so many persons on, a text is searched only for those of whom it has such characters. To
#: cut 50 reports of 22 KB into pieces takes 0.11 s; to search them takes 1 ms for one person,
#: 0.12 s for 150, and 0.42 s for 500.
_MANY = 150
#: An e-mail address, from each place where one may begin; it ends where `_whole` lets one end.
_ADDRESS = re.compile(r"(?<![\w.+%-])(?=([\w.+%-]++@[\w-]++(?:\.\w[\w-]*+)*+))")

#: An escape of JSON. Decoded JSON still has those of quotation marks, backslashes and control
#: characters, which neither an address nor a number has.
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)", re.IGNORECASE)


class PersonMatcher(Struct, frozen=True):
    """Finds one customer in a text."""

    hotel_id: int
    #: Lower case; "" is none.
    email: str
    #: The digits of the telephone number, as written and in E.164.
    numbers: frozenset[str]
    #: First and last name, lower case; "" unless both are known.
    name: str

    def is_named_in(self, text: str) -> bool:
        """Whether a text (lower case) has the address, not only as a part of a longer one."""
        return bool(self.email) and self.email in text and bool(_whole(self.email).search(text))

    @property
    def known(self) -> tuple[str, ...]:
        """What `hide` looks for, in lower case."""
        return tuple(filter(None, (self.email, self.name, *self.numbers)))

    def may_be_in(self, text: str) -> bool:
        """Whether `hide` may change a text (lower case); much faster than `hide`."""
        return any(known in text for known in self.known)

    def hide(self, text: str) -> str:
        """The text with the address, name and numbers replaced by an ellipsis."""
        if self.email:
            text = _whole(self.email).sub("…", text)
        for known in (self.name, *self.numbers):
            if known:
                text = re.sub(rf"\+?{re.escape(known)}", "…", text, flags=re.IGNORECASE)
        return text


class GroupMatcher(Struct, frozen=True):
    """Finds any of several customers in a text, in the time that it takes to find one."""

    emails: frozenset[str]
    #: Customers whose address `_ADDRESS` does not match: tried one by one.
    odd: tuple[PersonMatcher, ...]
    numbers: frozenset[str]

    def is_named_in(self, text: str) -> bool:
        """Whether `PersonMatcher.is_named_in` is true for one of them."""
        if self.emails and "@" in text:
            if any(found[1] in self.emails for found in _ADDRESS.finditer(text)):
                return True
        return any(matcher.is_named_in(text) for matcher in self.odd)

    def is_numbered_in(self, text: str) -> bool:
        """Whether a text has a number of one of them, and no address."""
        return bool(self.numbers) and "@" not in text and not self.numbers.isdisjoint(_read(text))


def group_matchers(matchers: Sequence[PersonMatcher]) -> Mapping[int, GroupMatcher]:
    """Hotel id -> matcher of its customers."""
    by_hotel: defaultdict[int, list[PersonMatcher]] = defaultdict(list)
    for matcher in matchers:
        by_hotel[matcher.hotel_id].append(matcher)
    return {hotel_id: group_matcher(ones) for hotel_id, ones in by_hotel.items()}


def group_matcher(matchers: Sequence[PersonMatcher]) -> GroupMatcher:
    """The matcher of all these customers."""
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
    """A pattern for the address that does not match a part of a longer address."""
    around = r"(?<![\w.+%-])", r"(?![\w-]|\.\w)"
    return re.compile(re.escape(email).join(around), re.IGNORECASE)


def matcher_of(customer: Customer) -> PersonMatcher:
    """The matcher of a row of `customer`."""
    written = (customer["phone"] or "", customer["phone_e164"] or "")
    numbers = frozenset(d for text in written if len(d := digits_of(text)) >= _MIN_DIGITS)
    first, last = customer["first_name"], customer["last_name"]
    name = f"{first} {last}".lower() if first and last else ""
    return PersonMatcher(customer["hotel_id"], customer["email"] or "", numbers, name)


def _read(text: str) -> set[str]:
    """The telephone numbers in a text, as digits; "1/2" may be one number or two."""
    if not text.isascii():
        text = "".join(str(decimal(c)) if c.isdecimal() else c for c in text)
    written = [match[0] for match in _NUMBER.finditer(text)]
    found = {digits_of(part) for one in written for part in (one, *one.split("/"))}
    return found | {digits.removeprefix("00") for digits in found}


#: Rows of a page: versions are short, submissions may be 256 KiB each.
VERSIONS, INBOX, MAILS = 1000, 100, 50


@dataclass(slots=True)
class Traces:
    """The rows that were found."""

    #: Ids of submissions.
    inbox: list[int] = field(default_factory=list)
    #: Ids of versions.
    versions: list[int] = field(default_factory=list)
    #: Id, subject, text and HTML without the personal data.
    mails: list[tuple[int, str, str, str | None]] = field(default_factory=list)


async def find_traces(
    store: Store, matchers: Sequence[PersonMatcher], *, spare_open: bool = False
) -> Traces:
    """Find traces of all customers. `spare_open`: skip submissions in review."""
    found, groups = Traces(), group_matchers(matchers)
    async for rows in _pages(store, "customer_inbox_range", "customer_scan_inbox", INBOX):
        looked = [row for row in rows if not (spare_open and row["state"] == "review")]
        found.inbox += await asyncio.to_thread(_find_in_inbox, looked, groups)
    async for rows in _pages(store, "customer_version_range", "customer_scan_versions", VERSIONS):
        found.versions += await asyncio.to_thread(_find_in_versions, rows, groups)
    async for rows in _pages(store, "customer_mail_range", "customer_scan_mails", MAILS):
        found.mails += await asyncio.to_thread(_find_in_mails, rows, matchers)
    return found


def _find_in_inbox(rows: Sequence[Row], groups: Mapping[int, GroupMatcher]) -> list[int]:
    """Submissions of another customer's request match by address only: two may share a number."""
    found = []
    for row in rows:
        if (group := groups.get(row["hotel_id"])) is None:
            continue
        text = _readable(bytes(row["body"]).decode("utf-8-sig", "replace"))
        if group.is_named_in(text) or (
            row["reservation_id"] is None and group.is_numbered_in(text)
        ):
            found.append(row["id"])
    return found


def _find_in_versions(rows: Sequence[Row], groups: Mapping[int, GroupMatcher]) -> list[int]:
    return [
        row["id"]
        for row in rows
        if (group := groups.get(row["hotel_id"])) and group.is_named_in(_readable(row["data"]))
    ]


def _find_in_mails(
    rows: Sequence[Row], matchers: Sequence[PersonMatcher]
) -> list[tuple[int, str, str, str | None]]:
    heads = _heads_of(matchers) if len(matchers) >= _MANY else None
    found = []
    for row in rows:
        before = (row["subject"], row["text"], row["html"])
        after = tuple(_hidden(text, matchers, heads) for text in before)
        if after != before:
            found.append((row["id"], after[0] or "", after[1] or "", after[2]))
    return found


def _heads_of(matchers: Sequence[PersonMatcher]) -> Mapping[str, set[int]]:
    """First characters of a name, address or number -> indexes of the persons who have them."""
    heads: defaultdict[str, set[int]] = defaultdict(set)
    for index, matcher in enumerate(matchers):
        for known in matcher.known:
            heads[known[:_HEAD] if len(known) >= _HEAD else ""].add(index)
    return heads


def _indexes_in(text: str, heads: Mapping[str, set[int]]) -> Sequence[int]:
    """The persons of whom a text has the first characters."""
    pieces = {"", *(text[at : at + _HEAD] for at in range(len(text)))}
    return sorted(set().union(*(heads[piece] for piece in pieces & heads.keys())))


def _hidden(
    text: str | None, matchers: Sequence[PersonMatcher], heads: Mapping[str, set[int]] | None
) -> str | None:
    if not text:
        return text
    lower = text.lower()
    for index in range(len(matchers)) if heads is None else _indexes_in(lower, heads):
        if matchers[index].may_be_in(lower):
            text = matchers[index].hide(text)
    return text


async def _pages(store: Store, window: str, scan: str, limit: int) -> AsyncIterator[list[Row]]:
    """The pages of a table: `window` is the query for the last id of one, `scan` for its rows."""
    after: int | None = 0

    async def look(tx: Tx) -> tuple[int | None, list[Row]]:
        [end] = await tx.fetch_all(window, after=after, limit=limit)
        if end["last"] is None:
            return None, []
        return end["last"], await tx.fetch_all(scan, after=after, last=end["last"])

    while after is not None:
        after, rows = await store.read(look)
        yield rows


def _readable(text: str) -> str:
    """A text in lower case, with the escapes of JSON decoded; and once more with those of a form or
    of a URL. A + is a space in a form, but in JSON it may belong to an address.
    """
    is_json = text.lstrip().startswith(("{", "["))
    if is_json and "\\" in text:
        with suppress(ValueError, RecursionError):  # parse_int: int reads 4300 digits at most
            text = json.dumps(json.loads(text, parse_int=str), ensure_ascii=False)
        text = _ESCAPE.sub("\n", text)
    if "%" in text or ("+" in text and not is_json):
        text = f"{text}\n{unquote(text) if is_json else unquote_plus(text)}"
    return text.lower()
