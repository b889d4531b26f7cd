"""What hotel software says of the guest requests that it fetched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from alpinehub import history
from alpinehub.alpinebits.delivery import entry_of
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.last_contact import note_contact
from alpinehub.alpinebits.reader import Reader

if TYPE_CHECKING:
    from lxml.etree import _Element

    from alpinehub.alpinebits.call import Client
    from cordata import Context, Row, Tx

#: Type "business rule", code "unable to process": the one form in which a request is rejected.
_UNABLE_TO_PROCESS = ("3", "450")
_MAX_REASON_CHARS = 2000
#: Taken, and rejected, in one unit: webhooks get their turn between them.
RECORDED = 200
#: HttpError requests that an alert names.
_TOLD = 20

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """OTA_NotifReportRQ: what the hotel took, and what it could not take."""

    #: (UniqueID type, ID) of what was processed.
    accepted: tuple[tuple[str, str], ...]
    #: ID -> the hotel's words on why it could not process the request.
    rejected: dict[str, str]


def _read(root: _Element) -> Acknowledgement:
    """A refusal is a Warning of Type 3 and Code 450 whose ID is not among the accepted; other
    warnings are remarks on what was accepted and change nothing.
    """
    accepted = tuple((one.get("Type", ""), one.get("ID", "")) for one in _all(root, "UniqueID"))
    taken = {unique_id for _, unique_id in accepted}
    rejected: dict[str, str] = {}
    for warning in _all(root, "Warning"):
        kind, code = (warning.get(name, "").strip().lstrip("0") for name in ("Type", "Code"))
        record_id = warning.get("RecordID", "")
        if (kind, code) == _UNABLE_TO_PROCESS and record_id not in taken:
            text = " ".join((warning.text or "").split())
            rejected.setdefault(record_id, text[:_MAX_REASON_CHARS])
    return Acknowledgement(accepted=accepted, rejected=rejected)


def _all(root: _Element, name: str) -> Iterator[_Element]:
    return root.iter(tag(name))


REPORT = Reader(root="OTA_NotifReportRQ", read=_read, type=Acknowledgement, pooled=True)


async def acknowledge(ctx: Context, client: Client, told: Acknowledgement) -> Sequence[str]:
    """Record what an account took and what he rejected; the IDs that were never sent to him.

    Saying the same again changes nothing. Raises: StoreUnavailable; a part of it may be recorded
    then, and is known when it comes again.
    """
    taken, declined = set[tuple[str, str]](), set[str]()
    news: list[Row] = []
    try:
        for part in _parts(told):
            accepted, rejected, new = await ctx.store.run(
                partial(_record, client=client, told=part)
            )
            taken |= accepted
            declined |= rejected
            news += new
    finally:
        _tell(ctx, news)
    unknown = [unique_id for kind, unique_id in told.accepted if (kind, unique_id) not in taken]
    unknown += [unique_id for unique_id in told.rejected if unique_id not in declined]
    return list(dict.fromkeys(unknown))


def _parts(told: Acknowledgement) -> Iterator[Acknowledgement]:
    """RECORDED at a time."""
    accepted, rejected = tuple(dict.fromkeys(told.accepted)), list(told.rejected.items())
    for start in range(0, max(len(accepted), len(rejected)), RECORDED):
        part = slice(start, start + RECORDED)
        yield Acknowledgement(accepted=accepted[part], rejected=dict(rejected[part]))


async def _record(
    tx: Tx, client: Client, told: Acknowledgement
) -> tuple[set[tuple[str, str]], set[str], list[Row]]:
    """The unit: what was accepted and rejected of what is known, and which rejections are new."""
    who = {"account_id": client.account_id, "now_us": tx.now_us}
    taken: list[Row] = []
    if told.accepted:
        accepted = _encode([(int(kind), unique_id) for kind, unique_id in told.accepted]).decode()
        taken = await tx.fetch_all("listing_acknowledge", accepted=accepted, **who)
    declined: list[Row] = []
    before: set[tuple[str, int]] = set()
    if told.rejected:
        rejected = _encode(list(told.rejected.items())).decode()
        known = await tx.fetch_all(
            "listing_rejected", rejected=rejected, account_id=client.account_id
        )
        before = {_version(row) for row in known if row["rejected_text"] is not None}
        declined = await tx.fetch_all("listing_reject", rejected=rejected, **who)
    # A refusal may follow an acknowledgement: it is news by its own words.
    new = [row for row in declined if _version(row) not in before]
    first = [row for row in taken if row["acked_at"] == tx.now_us]
    for event, rows in (("acknowledged", first), ("rejected", new)):
        for row in rows:
            await history.add(tx, entry_of(row, event, client))
    for hotel_id in sorted({row["hotel_id"] for row in (*taken, *declined)}):
        await note_contact(tx, client, hotel_id, acked=True)
    return (
        {(str(row["unique_id_type"]), row["reservation_id"]) for row in taken},
        {row["reservation_id"] for row in declined},
        new,
    )


def _tell(ctx: Context, rejected: Sequence[Row]) -> None:
    """An alert for each hotel. What it said is in the trail: its words may name the guest."""
    by_hotel: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rejected:
        by_hotel[row["hotel"]].append(row)
    for hotel, rows in by_hotel.items():
        many = "1 guest request" if len(rows) == 1 else f"{len(rows)} guest requests"
        ids = ", ".join(row["reservation_id"] for row in rows[:_TOLD])
        more = ", ..." if len(rows) > _TOLD else ""
        account = rows[0]["account_name"]
        ctx.alert(
            f"rejected-by-hotel:{hotel}",
            f"hotel software of account {account} rejected {many} of hotel {hotel}: "
            f"{ids}{more}; see: alpinehub requests list --hotel {hotel} --state rejected",
            ids=[hotel],
        )


def _version(row: Row) -> tuple[str, int]:
    return row["reservation_id"], row["version"]
