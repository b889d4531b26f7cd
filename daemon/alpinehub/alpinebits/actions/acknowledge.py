"""OTA_NotifReport:GuestRequests: hotel software acknowledges guest requests, or rejects them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from alpinehub.alpinebits.call import Call, Recipient, ResponseBody, read
from alpinehub.alpinebits.contact import note_contact
from alpinehub.alpinebits.guest_requests import STEP, add_history, name_requests
from alpinehub.alpinebits.outcome import Finding, Outcome
from alpinehub.alpinebits.rules.acknowledgement import REPORT, Acknowledgement
from alpinehub.sql import encode_list
from cordata import Context, Row, Tx

_UNKNOWN = "no guest request with this ID was sent to this account"


async def acknowledge_requests(call: Call) -> ResponseBody:
    """Success; from 2022-10 on with a Warning for each ID that was never sent to this account."""
    unknown = await acknowledge(call.ctx, call.recipient, await read(call, REPORT))
    notes = (Finding(kind="advisory", text=_UNKNOWN, record=record) for record in unknown)
    return call.respond(Outcome(tuple(notes)))


async def acknowledge(ctx: Context, recipient: Recipient, report: Acknowledgement) -> Sequence[str]:
    """Record what an account accepted and rejected; returns the IDs that were never sent to it.

    A repeated report changes nothing. Raises: StoreUnavailable; then a part of the report may be
    recorded, which is recognized when the report comes again.
    """
    unknown: list[str] = []
    rejected: list[Row] = []
    try:
        for part in _parts(report):
            missing, new = await ctx.store.run(partial(_record, recipient=recipient, report=part))
            unknown += missing
            rejected += new
    finally:
        _alert_rejected(ctx, rejected)
    return list(dict.fromkeys(unknown))


def _parts(report: Acknowledgement) -> Iterator[Acknowledgement]:
    """The report in parts of at most STEP accepted and STEP rejected requests."""
    accepted, rejected = tuple(dict.fromkeys(report.accepted)), list(report.rejected.items())
    for start in range(0, max(len(accepted), len(rejected)), STEP):
        part = slice(start, start + STEP)
        yield Acknowledgement(accepted=accepted[part], rejected=dict(rejected[part]))


async def _record(
    tx: Tx, recipient: Recipient, report: Acknowledgement
) -> tuple[list[str], list[Row]]:
    """Record a part; returns the IDs that were never sent, and the new rejections.

    A rejection may follow an acknowledgement: whether it is new depends on rejections only.
    """
    who = {"account_id": recipient.account_id, "now_us": tx.now_us}
    accepted: list[Row] = []
    if report.accepted:
        ids = encode_list((int(kind), unique_id) for kind, unique_id in report.accepted)
        accepted = await tx.fetch_all("delivery_acknowledge", accepted=ids, **who)
    rejected: list[Row] = []
    new: list[Row] = []
    if report.rejected:
        rejected = await tx.fetch_all(
            "delivery_sent", ids=encode_list(report.rejected), account_id=recipient.account_id
        )
        reasons = encode_list(report.rejected.items())
        new = await tx.fetch_all("delivery_reject", rejected=reasons, **who)
    first = [row for row in accepted if row["acked_at"] == tx.now_us]
    await add_history(tx, first, "acknowledged", recipient)
    await add_history(tx, new, "rejected", recipient)
    for hotel_id in sorted({row["hotel_id"] for row in (*accepted, *rejected)}):
        await note_contact(tx, recipient, hotel_id, acked=True)
    known = {(str(row["unique_id_type"]), row["reservation_id"]) for row in accepted}
    sent = {row["reservation_id"] for row in rejected}
    unknown = [one for kind, one in report.accepted if (kind, one) not in known]
    unknown += [one for one in report.rejected if one not in sent]
    return unknown, new


def _alert_rejected(ctx: Context, rejected: Sequence[Row]) -> None:
    """Send an alert for each hotel, without the reasons, which may name the guest."""
    by_hotel: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rejected:
        by_hotel[row["hotel"]].append(row)
    for hotel, rows in by_hotel.items():
        many, ids = name_requests([row["reservation_id"] for row in rows])
        account = rows[0]["account_name"]
        ctx.alert(
            f"rejected-by-hotel:{hotel}",
            f"hotel software of account {account} rejected {many} of hotel {hotel}: "
            f"{ids}; see: alpinehub requests list --hotel {hotel} --state rejected",
            ids=[hotel],
        )
