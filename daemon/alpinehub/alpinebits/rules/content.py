"""What a hotel is and has, as it is pushed: Inventory (categories and rooms) or Info (the rest).

The action says which of the two a document is, not the document; so it is held against both sets of
rules, and the action looks at its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import Finding
from alpinehub.alpinebits.reader import PUSH_BYTES, PUSH_MARKUP, Reader
from alpinehub.alpinebits.rules.inbound import MISSING, UNABLE, InboundMessage, Problems
from alpinehub.alpinebits.rules.inventory import Inventory
from alpinehub.alpinebits.rules.texts import check_texts

if TYPE_CHECKING:
    from lxml.etree import _Element

    from alpinehub.models import Feature

CONTENT_RQ: Final = "OTA_HotelDescriptiveContentNotifRQ"
_NOT_INVENTORY = ("HotelInfo", "Policies", "AffiliationInfo", "ContactInfos")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentTold(InboundMessage):
    """A push of a hotel's content, by the rules that are the same for both actions."""

    #: What is wrong with it as an Inventory, and as an Info.
    inventory: tuple[Finding, ...] = ()
    info: tuple[Finding, ...] = ()
    #: The HotelDescriptiveContent as canonical XML.
    content: bytes = b""

    def as_(self, feature: Feature) -> InboundMessage:
        """As the push of an action: "inventory" or "info"."""
        return InboundMessage(
            hotel_code=self.hotel_code,
            hotel_name=self.hotel_name,
            findings=self.inventory if feature == "inventory" else self.info,
            uses=frozenset({feature}),
        )


def _read(root: _Element) -> ContentTold:
    from lxml import etree

    content = root[0][0]
    return ContentTold(
        hotel_code=content.get("HotelCode"),
        hotel_name=content.get("HotelName"),
        inventory=tuple(_check_inventory(content).findings),
        info=tuple(_check_info(content).findings),
        content=etree.tostring(content, method="c14n", exclusive=True),
    )


def _check_inventory(content: _Element) -> Problems:
    problems = Problems()
    for name in _NOT_INVENTORY:
        if _child(content, name) is not None:
            problems.add(UNABLE, f"{name} is not allowed in an Inventory push; send it as Info")
    rooms = _child(content, "FacilityInfo")
    if rooms is None:
        problems.add(MISSING, "FacilityInfo is missing")
        return problems
    Inventory(problems).check(rooms[0])
    check_texts(rooms, problems)
    return problems


def _check_info(content: _Element) -> Problems:
    """Of its rooms nothing but pictures; from 2024-10 on a room must have a TypeRoom, so that
    there is none.
    """
    problems = Problems()
    for at, room in enumerate(_rooms(content), start=1):
        if set(room.attrib) - {"Code"}:
            problems.add(UNABLE, f"GuestRoom {at}: the only attribute in an Info push is Code")
        for child in room:
            if child.tag != tag("MultimediaDescriptions"):
                text = "only MultimediaDescriptions are allowed in an Info push"
                problems.add(UNABLE, f"GuestRoom {at}: {text}")
                continue
            for description in child:
                if description.get("InfoCode") is not None:
                    problems.add(UNABLE, f"GuestRoom {at}: InfoCode is not allowed in an Info push")
                if _child(description, "ImageItems") is None:
                    problems.add(MISSING, f"GuestRoom {at}: ImageItems are missing")
    return problems


def _rooms(content: _Element) -> Iterator[_Element]:
    return content.iter(tag("GuestRoom"))


def _child(element: _Element, name: str) -> _Element | None:
    return element.find(tag(name))


CONTENT = Reader(
    root=CONTENT_RQ,
    read=_read,
    type=ContentTold,
    pooled=True,
    max_bytes=PUSH_BYTES,
    max_markup=PUSH_MARKUP,
)
