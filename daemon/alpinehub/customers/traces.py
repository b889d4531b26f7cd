"""Traces of a person: personal data in rows that do not belong to a request of theirs.

    inbox .......... submissions in review, or rejected, or of another customer's request; of a
                     person who is no customer, too
    versions ....... older versions of a request that belongs to another customer now, because the
                     guest corrected the e-mail address
    mails .......... as long as the runtime keeps them

Each table is read completely, a page at a time. No lock is held, and a page is searched in a
thread, so that the event loop is not blocked. The addresses and numbers of an inbox row or a
version are looked up among those of all persons searched for (GroupMatcher): a thousand cost the
same as one. A mail is searched for each person; many are first looked up by the first characters of
what is known of them.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from alpinehub.customers.matcher import (
    FoundBy,
    GroupMatcher,
    PersonMatcher,
    group_matchers,
    readable,
)
from alpinehub.customers.phone import written_forms
from alpinehub.customers.search import MAX_FOUND, PersonQuery, plain_number
from alpinehub.hotels import Unusable, require_hotel
from cordata import Row, Store, Tx

#: Number of first characters by which many persons are looked up in a mail. Those with a shorter
#: name are searched for in every mail.
_HEAD = 5
#: From so many persons on, a text is searched only for those of whom it has such characters. To
#: cut 50 reports of 22 KB into pieces takes 0.11 s; to search them takes 1 ms for one person,
#: 0.12 s for 150, and 0.42 s for 500.
_MANY = 150
#: Rows of a page: versions are short, submissions may be 256 KiB each.
VERSIONS, INBOX, MAILS = 1000, 100, 50

#: Called after each page with what is read, and the share of the table that is read, 0 to 1.
Progress = Callable[[str, float], None]


class FoundSubmission(Struct, frozen=True, kw_only=True):
    """A submission that names a person; no personal data."""

    id: int
    hotel: str
    source: str
    received_at: int
    state: str
    found_by: FoundBy
    reservation_id: str | None


@dataclass(slots=True)
class Traces:
    """The rows that were found."""

    submissions: list[FoundSubmission] = field(default_factory=list)
    #: Ids of versions.
    versions: list[int] = field(default_factory=list)
    #: Id, subject, text and HTML without the personal data.
    mails: list[tuple[int, str, str, str | None]] = field(default_factory=list)


def no_progress(what: str, share: float) -> None:
    """Report nothing."""


async def query_matchers(store: Store, query: PersonQuery) -> list[PersonMatcher]:
    """Matchers of the address or number of a query, one for each hotel: they find the person
    whether they are a customer or not. Raises: Unusable.
    """
    email, phone = query.email, query.phone
    if email is not None and not re.fullmatch(r"[^@\s]+@[^@\s]+", email.strip()):
        raise Unusable("the e-mail address must be a whole one, like eva@example.com")
    if email is None and phone is None:
        return []

    async def unit(tx: Tx) -> list[Row]:
        hotel_id = None if query.hotel is None else await require_hotel(tx, query.hotel)
        return await tx.fetch_all("customer_hotels", hotel_id=hotel_id)

    hotels = await store.read(unit)

    def make() -> list[PersonMatcher]:
        forms = {
            region: written_forms(plain_number(phone), region) if phone else frozenset[str]()
            for region in {row["region"] for row in hotels}
        }
        address = (email or "").strip().lower()
        return [
            PersonMatcher(row["id"], address, forms[row["region"]], is_asked=True) for row in hotels
        ]

    return await asyncio.to_thread(make)


async def find_traces(
    store: Store,
    matchers: Sequence[PersonMatcher],
    *,
    customers: Collection[int] = (),
    spare_open: bool = False,
    progress: Progress = no_progress,
) -> Traces:
    """Find traces of all these persons. `customers`: their ids, whose own requests are skipped.
    `spare_open`: skip submissions in review.
    """
    found, groups = Traces(), group_matchers(matchers)
    # A mail belongs to no hotel.
    persons = list(dict.fromkeys(replace(matcher, hotel_id=0) for matcher in matchers))
    found.submissions = await find_submissions(
        store, groups, customers=customers, spare_open=spare_open, progress=progress
    )
    window, scan = "customer_version_range", "customer_scan_versions"
    async for share, rows in _pages(store, window, scan, VERSIONS):
        others = [row for row in rows if row["customer_id"] not in customers]
        found.versions += await asyncio.to_thread(_find_in_versions, others, groups)
        progress("versions", share)
    async for share, rows in _pages(store, "customer_mail_range", "customer_scan_mails", MAILS):
        found.mails += await asyncio.to_thread(_find_in_mails, rows, persons)
        progress("mails", share)
    return found


async def find_submissions(
    store: Store,
    groups: Mapping[int, GroupMatcher],
    *,
    customers: Collection[int] = (),
    spare_open: bool = False,
    progress: Progress = no_progress,
) -> list[FoundSubmission]:
    """The part of `find_traces` for the inbox. `groups`: hotel id -> matcher of the persons."""

    def finder(row: Row) -> FoundBy | None:
        if row["customer_id"] in customers or (spare_open and row["state"] == "review"):
            return None
        return _found_by(row, groups)

    return [one async for one in _search_inbox(store, finder, progress)]


async def find_by_name(
    store: Store, name: str, *, hotel: str | None = None, progress: Progress = no_progress
) -> list[FoundSubmission]:
    """Submissions of no guest request that have a name, as whole words; the newest MAX_FOUND, and
    one more, which shows that there are more.
    """
    if not name.strip():
        return []
    words = r"\W+".join(map(re.escape, name.lower().split()))
    whole = re.compile(rf"(?<!\w){words}(?!\w)")

    def finder(row: Row) -> FoundBy | None:
        if row["reservation_id"] is not None or hotel not in (None, row["hotel"]):
            return None
        return "name" if whole.search(_text_of(row)) else None

    found = deque[FoundSubmission](maxlen=MAX_FOUND + 1)
    async for one in _search_inbox(store, finder, progress):
        found.append(one)
    return list(found)


async def _search_inbox(
    store: Store, finder: Callable[[Row], FoundBy | None], progress: Progress
) -> AsyncIterator[FoundSubmission]:
    """The submissions that a function finds; it is called in a thread."""

    def search(rows: Sequence[Row]) -> list[FoundSubmission]:
        names = ("id", "hotel", "source", "received_at", "state", "reservation_id")
        return [
            FoundSubmission(found_by=by, **{name: row[name] for name in names})
            for row in rows
            if (by := finder(row)) is not None
        ]

    async for share, rows in _pages(store, "customer_inbox_range", "customer_scan_inbox", INBOX):
        for one in await asyncio.to_thread(search, rows):
            yield one
        progress("submissions", share)


def _text_of(row: Row) -> str:
    return readable(bytes(row["body"]).decode("utf-8-sig", "replace"))


def _found_by(row: Row, groups: Mapping[int, GroupMatcher]) -> FoundBy | None:
    """Submissions of another customer's request match by address only: two may share a number."""
    if (group := groups.get(row["hotel_id"])) is None:
        return None
    text = _text_of(row)
    if group.is_named_in(text):
        return "address"
    is_free = row["reservation_id"] is None
    return "number" if is_free and group.is_numbered_in(text) else None


def _find_in_versions(rows: Sequence[Row], groups: Mapping[int, GroupMatcher]) -> list[int]:
    return [
        row["id"]
        for row in rows
        if (group := groups.get(row["hotel_id"])) and group.is_named_in(readable(row["data"]))
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


async def _pages(
    store: Store, window: str, scan: str, limit: int
) -> AsyncIterator[tuple[float, list[Row]]]:
    """The pages of a table, each with the share that is read: `window` is the query for the last id
    of one, `scan` for its rows.
    """
    after: int | None = 0

    async def look(tx: Tx) -> tuple[int | None, float, list[Row]]:
        [end] = await tx.fetch_all(window, after=after, limit=limit)
        if end["last"] is None:
            return None, 1.0, []
        rows = await tx.fetch_all(scan, after=after, last=end["last"])
        return end["last"], end["last"] / end["newest"], rows

    while after is not None:
        after, share, rows = await store.read(look)
        yield share, rows
