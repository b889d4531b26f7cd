"""The hotel side of a push: takes, refuses, fails as told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lxml import etree
from tests.integration.alpinebits_client.peers import Asked, http

from alpinehub.alpinebits.document import NAMESPACE

_ALL = f"{{{NAMESPACE}}}HotelReservation"


@dataclass
class HotelSoftware:
    """Answers OTA_HotelResNotif; use `answer` as a scripted server's `respond`."""

    #: ID -> why.
    refused: dict[str, str] = field(default_factory=dict)
    #: Codes of hotels that it does not know.
    unknown_hotels: set[str] = field(default_factory=set)
    #: Answers a message otherwise, when it returns something: bytes, or None for staleness.
    otherwise: Callable[[Asked], bytes | None] | None = None
    #: (type, ID) of what came, message by message.
    came: list[list[tuple[str, str]]] = field(default_factory=list)

    def answer(self, asked: Asked) -> bytes:
        """The response."""
        root = etree.fromstring(asked.document)
        known = [(one[0].get("Type", ""), one[0].get("ID", "")) for one in root.iter(_ALL)]
        self.came.append(known)
        if self.otherwise is not None and (answer := self.otherwise(asked)) is not None:
            return answer
        codes = {one.get("HotelCode") for one in root.iter(f"{{{NAMESPACE}}}BasicPropertyInfo")}
        if codes & self.unknown_hotels:
            return http(errors("13", "392"))
        return http(taken(known, self.refused))

    @property
    def ids(self) -> list[str]:
        """Of all that came, in order."""
        return [unique_id for message in self.came for _, unique_id in message]


def taken(known: Iterable[tuple[str, str]], refused: dict[str, str]) -> str:
    """OTA_HotelResNotifRS."""
    warnings = "".join(
        f'<Warning Type="3" Code="450" RecordID="{unique_id}">{refused[unique_id]}</Warning>'
        for _, unique_id in known
        if unique_id in refused
    )
    rows = "".join(
        f'<HotelReservation><UniqueID Type="{kind}" ID="{unique_id}"/></HotelReservation>'
        for kind, unique_id in known
        if unique_id not in refused
    )
    inside = f"<Warnings>{warnings}</Warnings>" if warnings else ""
    inside += f"<HotelReservations>{rows}</HotelReservations>" if rows else ""
    return _message(f"<Success/>{inside}")


def errors(kind: str, code: str) -> str:
    """It took nothing; its words hold a name, which is nobody's business."""
    said = f'<Error Type="{kind}" Code="{code}">Eva Muster cannot stay</Error>'
    return _message(f"<Errors>{said}</Errors>")


def _message(inside: str) -> str:
    return (
        f'<OTA_HotelResNotifRS xmlns="{NAMESPACE}" Version="1.000">{inside}</OTA_HotelResNotifRS>'
    )
