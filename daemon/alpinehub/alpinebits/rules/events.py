"""EventReports: what happens in and around the hotel, one report for each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from alpinehub.alpinebits.document import canonical, child, descendant, descendants
from alpinehub.alpinebits.outcome import INVALID_DATES, INVALID_VALUE, UNABLE
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.inbound_message import InboundMessage, Problems, day

if TYPE_CHECKING:
    from lxml.etree import _Element


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one event."""

    #: The namespace of the id.
    context: str
    id: str
    #: The EventReport as canonical XML; None: the event is to be deleted.
    body: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsMessage(InboundMessage):
    """A push of event reports."""

    reports: tuple[Report, ...] = ()


def _read(root: _Element) -> EventsMessage:
    problems = Problems()
    sites = list(descendants(root, "EventSite"))
    hotels = {(one.get("HotelCode"), one.get("HotelName")) for one in sites}
    if len(hotels) > 1:
        problems.add(UNABLE, "the reports are of several hotels; send one message for each")
    reports = [_read_report(one, at, problems) for at, one in enumerate(root[0], start=1)]
    if len({(one.context, one.id) for one in reports}) < len(reports):
        problems.add(INVALID_VALUE, "an event is listed twice")
    return EventsMessage(
        hotel_code=sites[0].get("HotelCode"),
        hotel_name=sites[0].get("HotelName"),
        findings=tuple(problems.findings),
        uses=frozenset({"activities"}),
        reports=() if problems else tuple(reports),
    )


def _read_report(report: _Element, at: int, problems: Problems) -> Report:
    event = descendant(report, "Event_ID")
    info = child(report, "GeneralEventInfo")
    assert event is not None and info is not None  # the grammar says so
    for one in descendants(info, "Date"):
        if _ends_before_start(one.get("Start", ""), one.get("End", "")):
            problems.add(INVALID_DATES, f"EventReport {at}: invalid combination of Start and End")
    body = None
    if len(info) or info.attrib:
        body = canonical(report)
    return Report(context=event.get("ID_Context", ""), id=event.get("ID", ""), body=body)


def _ends_before_start(start: str, end: str) -> bool:
    """Whether the end is certainly before the start. Each may be a day, a date and time with or
    without a zone, a time without a day, and before 2024-10 any text.
    """
    first, last = day(start[:10]), day(end[:10])
    if first is None or last is None:
        return False
    alike = len(start) == len(end) and start[19:] == end[19:]
    return last < first or (last == first and alike and end < start)


EVENTS = Reader(root="OTA_HotelPostEventNotifRQ", read=_read, type=EventsMessage)
