"""Acknowledgements: which guest requests hotel software accepted, and which it rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from alpinehub.alpinebits.document import descendants
from alpinehub.alpinebits.reader import Reader

if TYPE_CHECKING:
    from lxml.etree import _Element

#: Type "business rule", code "unable to process": the one form in which a request is rejected.
_UNABLE_TO_PROCESS = ("3", "450")
_MAX_REASON_CHARS = 2000


class Acknowledgement(Struct, frozen=True, kw_only=True):
    """OTA_NotifReportRQ: which guest requests the hotel accepts, and which it rejects."""

    #: (UniqueID type, ID) of what was processed.
    accepted: tuple[tuple[str, str], ...]
    #: ID -> why the hotel could not process the request, in its own words.
    rejected: dict[str, str]


def _read(root: _Element) -> Acknowledgement:
    """A rejection is a Warning of Type 3 and Code 450 whose ID is not among the accepted; other
    warnings are remarks on what was accepted and change nothing.
    """
    accepted = tuple(
        (one.get("Type", ""), one.get("ID", "")) for one in descendants(root, "UniqueID")
    )
    accepted_ids = {unique_id for _, unique_id in accepted}
    rejected: dict[str, str] = {}
    for warning in descendants(root, "Warning"):
        kind, code = (warning.get(name, "").strip().lstrip("0") for name in ("Type", "Code"))
        record_id = warning.get("RecordID", "")
        if (kind, code) == _UNABLE_TO_PROCESS and record_id not in accepted_ids:
            text = " ".join((warning.text or "").split())
            rejected.setdefault(record_id, text[:_MAX_REASON_CHARS])
    return Acknowledgement(accepted=accepted, rejected=rejected)


REPORT = Reader(root="OTA_NotifReportRQ", read=_read, type=Acknowledgement)
