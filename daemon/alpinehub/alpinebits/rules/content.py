"""Inventory and Info: the content of a hotel as hotel software pushes it, and its rules.

Inventory has the room categories and rooms, Info all the rest. Only the action says which of the
two a document is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from alpinehub.alpinebits.document import canonical, child, descendants, listed, tag
from alpinehub.alpinebits.outcome import INVALID_ROOM, INVALID_VALUE, MISSING, UNABLE
from alpinehub.alpinebits.reader import INBOUND_BYTES, INBOUND_MARKUP, Reader
from alpinehub.alpinebits.rules.inbound_message import (
    InboundMessage,
    Problems,
    check_texts,
    count,
)
from alpinehub.models import Feature

if TYPE_CHECKING:
    from lxml.etree import _Element

#: Code lists of OTA: classification of guest rooms (GRI), room amenities (RMA), categories of
#: pictures (PIC).
_ROOM_CLASSES: Final = range(1, 84)
_AMENITIES: Final = range(1, 294)
_PICTURE_CATEGORIES: Final = range(1, 24)
#: From 2024-10 on AlpineBits has amenities of its own.
_OWN_AMENITY = re.compile(r"[0-9]{1,3}\.[A-Z]{3}")

#: InfoCode of a MultimediaDescription.
_DESCRIPTION, _PICTURES, _NAME = 1, 23, 25
_MAX_DESCRIPTIONS = 3
_ROOM_ID: Final = "RoomID"
_NOT_INVENTORY = ("HotelInfo", "Policies", "AffiliationInfo", "ContactInfos")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentMessage(InboundMessage):
    """A push of a hotel's content."""

    #: The HotelDescriptiveContent as canonical XML.
    content: bytes = b""


def _read(
    root: _Element, feature: Feature, check: Callable[[_Element], Problems]
) -> ContentMessage:
    content = root[0][0]
    return ContentMessage(
        hotel_code=content.get("HotelCode"),
        hotel_name=content.get("HotelName"),
        findings=tuple(check(content).findings),
        uses=frozenset({feature}),
        content=canonical(content),
    )


def _check_inventory(content: _Element) -> Problems:
    problems = Problems()
    for name in _NOT_INVENTORY:
        if child(content, name) is not None:
            problems.add(UNABLE, f"{name} is not allowed in an Inventory push; send it as Info")
    rooms = child(content, "FacilityInfo")
    if rooms is None:
        problems.add(MISSING, "FacilityInfo is missing")
        return problems
    _RoomsCheck(problems).check(rooms[0])
    check_texts(rooms, problems)
    return problems


def _check_info(content: _Element) -> Problems:
    """Rooms may have only pictures. From 2024-10 on the schema requires a TypeRoom, which is not
    allowed here, so that an Info has no rooms at all.
    """
    problems = Problems()
    for at, room in enumerate(descendants(content, "GuestRoom"), start=1):
        if set(room.attrib) - {"Code"}:
            problems.add(UNABLE, f"GuestRoom {at}: the only attribute in an Info push is Code")
        for part in room:
            if part.tag != tag("MultimediaDescriptions"):
                text = "only MultimediaDescriptions are allowed in an Info push"
                problems.add(UNABLE, f"GuestRoom {at}: {text}")
                continue
            for description in part:
                if description.get("InfoCode") is not None:
                    problems.add(UNABLE, f"GuestRoom {at}: InfoCode is not allowed in an Info push")
                if child(description, "ImageItems") is None:
                    problems.add(MISSING, f"GuestRoom {at}: ImageItems are missing")
    return problems


def _reader(feature: Feature, check: Callable[[_Element], Problems]) -> Reader[ContentMessage]:
    return Reader(
        root="OTA_HotelDescriptiveContentNotifRQ",
        read=partial(_read, feature=feature, check=check),
        type=ContentMessage,
        max_bytes=INBOUND_BYTES,
        max_markup=INBOUND_MARKUP,
    )


INVENTORY = _reader("inventory", _check_inventory)
INFO = _reader("info", _check_info)


class _RoomsCheck:
    """Adds the errors in the GuestRooms of an Inventory to the problems.

    The first GuestRoom of a Code describes the category (its heading); those that follow with the
    same Code only give the numbers of its rooms.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._at = 0

    def check(self, rooms: _Element) -> None:
        """Check all rooms; an empty list deletes everything and is valid."""
        headings: set[str] = set()
        room_ids: set[tuple[str, str]] = set()
        for self._at, room in enumerate(rooms, start=1):
            code = room.get("Code", "")
            if code not in headings:
                headings.add(code)
                self._check_heading(room)
                continue
            self._check_room(room)
            kind = child(room, "TypeRoom")
            room_id = kind.get(_ROOM_ID, "") if kind is not None else ""
            if room_id and (code, room_id) in room_ids:
                self._wrong(INVALID_ROOM, "this RoomID is listed twice")
            room_ids.add((code, room_id))

    def _check_heading(self, room: _Element) -> None:
        kind = child(room, "TypeRoom")
        if kind is not None and kind.get(_ROOM_ID) is not None:
            text = "the first one of a Code describes the category and has no RoomID"
            self._wrong(INVALID_ROOM, text)
        self._check_occupancy(room, kind)
        class_ = kind.get("RoomClassificationCode") if kind is not None else None
        if class_ is None:
            self._missing("RoomClassificationCode")
        elif count(class_) not in _ROOM_CLASSES:
            self._wrong(INVALID_VALUE, "RoomClassificationCode is not in OTA's list GRI")
        for amenity in listed(room, "Amenities"):
            code = amenity.get("RoomAmenityCode")
            if code is None:
                self._missing("RoomAmenityCode")
            elif not _is_amenity(code.strip()):
                self._wrong(INVALID_VALUE, "RoomAmenityCode is not in OTA's list RMA")
        self._check_descriptions(list(listed(room, "MultimediaDescriptions")))

    def _check_occupancy(self, room: _Element, kind: _Element | None) -> None:
        occupancies = {
            "MinOccupancy": room.get("MinOccupancy"),
            "MaxOccupancy": room.get("MaxOccupancy"),
            "StandardOccupancy": kind.get("StandardOccupancy") if kind is not None else None,
        }
        for name, value in occupancies.items():
            if value is None:
                self._missing(name)
        numbers = [count(value) for value in occupancies.values() if value is not None]
        children = count(room.get("MaxChildOccupancy", "0"))
        if len(numbers) < len(occupancies):
            return
        least, most, standard = numbers
        if least is None or most is None or standard is None or children is None:
            self._wrong(INVALID_VALUE, "an occupancy is too large")
            return
        if not least <= standard <= most:
            text = "MinOccupancy, StandardOccupancy, MaxOccupancy are not in this order"
            self._wrong(INVALID_VALUE, text)
        if children > most:
            self._wrong(INVALID_VALUE, "MaxChildOccupancy is greater than MaxOccupancy")

    def _check_descriptions(self, descriptions: list[_Element]) -> None:
        codes = []
        for one in descriptions:
            code = count(one.get("InfoCode", "0"))
            if not code:
                self._missing("InfoCode")
                continue
            codes.append(code)
            self._check_description(one, code)
        if len(descriptions) > _MAX_DESCRIPTIONS:
            self._wrong(UNABLE, "there are more than three MultimediaDescription")
        if len(set(codes)) < len(codes):
            self._wrong(INVALID_VALUE, "an InfoCode is listed twice")
        if _NAME not in codes:
            self._missing("the MultimediaDescription with InfoCode 25")

    def _check_description(self, description: _Element, code: int) -> None:
        if code in (_NAME, _DESCRIPTION):
            texts = list(descendants(description, "Description"))
            if child(description, "TextItems") is None or not texts:
                self._missing(f"TextItems with a Description for InfoCode {code}")
        elif code == _PICTURES:
            pictures = list(listed(description, "ImageItems"))
            if not pictures:
                self._missing(f"ImageItems for InfoCode {code}")
            if any(count(one.get("Category", "")) not in _PICTURE_CATEGORIES for one in pictures):
                self._wrong(INVALID_VALUE, "Category of a picture is not in OTA's list PIC")

    def _check_room(self, room: _Element) -> None:
        kind = child(room, "TypeRoom")
        if kind is None or kind.get(_ROOM_ID) is None:
            text = "RoomID is missing; a category is described once, before its rooms"
            self._wrong(INVALID_ROOM, text)
        attributes = {*room.attrib} - {"Code"}
        if kind is not None:
            attributes |= {*kind.attrib} - {_ROOM_ID}
        names = {part.tag.rpartition("}")[2] for part in room} - {"TypeRoom"}
        if attributes or names:
            text = "a room after the first of its Code has nothing but Code and RoomID"
            self._wrong(UNABLE, text)

    def _missing(self, what: str) -> None:
        self._wrong(MISSING, f"{what} is missing")

    def _wrong(self, code: int, text: str) -> None:
        self._problems.add(code, f"GuestRoom {self._at}: {text}")


def _is_amenity(code: str) -> bool:
    return count(code) in _AMENITIES or _OWN_AMENITY.fullmatch(code) is not None
