"""Inventory: a category, then its rooms.

The first GuestRoom of a Code tells of the category and is called its heading; those that follow
with the same Code tell no more than the numbers of its rooms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alpinehub.alpinebits.document import listed, tag
from alpinehub.alpinebits.outcome import INVALID_VALUE
from alpinehub.alpinebits.rules.codes import PICTURES, ROOM_CLASSES, is_amenity
from alpinehub.alpinebits.rules.inbound import INVALID_ROOM, MISSING, UNABLE, Problems, count

if TYPE_CHECKING:
    from lxml.etree import _Element

#: InfoCode of a MultimediaDescription.
_DESCRIPTION, _PICTURES, _NAME = 1, 23, 25
_MAX_DESCRIPTIONS = 3
_ROOM_ID: Final = "RoomID"


class Inventory:
    """Checks the list of rooms of one hotel."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._at = 0

    def check(self, rooms: _Element) -> None:
        """All rooms; none at all is how everything is deleted."""
        headings: set[str] = set()
        room_ids: set[tuple[str, str]] = set()
        for self._at, room in enumerate(rooms, start=1):
            code = room.get("Code", "")
            if code not in headings:
                headings.add(code)
                self._check_heading(room)
                continue
            self._check_room(room)
            kind = _child(room, "TypeRoom")
            room_id = kind.get(_ROOM_ID, "") if kind is not None else ""
            if room_id and (code, room_id) in room_ids:
                self._wrong(INVALID_ROOM, "this RoomID stands there twice")
            room_ids.add((code, room_id))

    def _check_heading(self, room: _Element) -> None:
        kind = _child(room, "TypeRoom")
        if kind is not None and kind.get(_ROOM_ID) is not None:
            text = "the first one of a Code tells of the category and has no RoomID"
            self._wrong(INVALID_ROOM, text)
        self._check_occupancy(room, kind)
        class_ = kind.get("RoomClassificationCode") if kind is not None else None
        if class_ is None:
            self._missing("RoomClassificationCode")
        elif count(class_) not in ROOM_CLASSES:
            self._wrong(INVALID_VALUE, "RoomClassificationCode is none of OTA's list GRI")
        for amenity in listed(room, "Amenities"):
            code = amenity.get("RoomAmenityCode")
            if code is None:
                self._missing("RoomAmenityCode")
            elif not is_amenity(code.strip()):
                self._wrong(INVALID_VALUE, "RoomAmenityCode is none of OTA's list RMA")
        self._check_descriptions(list(listed(room, "MultimediaDescriptions")))

    def _check_occupancy(self, room: _Element, kind: _Element | None) -> None:
        told = {
            "MinOccupancy": room.get("MinOccupancy"),
            "MaxOccupancy": room.get("MaxOccupancy"),
            "StandardOccupancy": kind.get("StandardOccupancy") if kind is not None else None,
        }
        for name, value in told.items():
            if value is None:
                self._missing(name)
        numbers = [count(value) for value in told.values() if value is not None]
        children = count(room.get("MaxChildOccupancy", "0"))
        if len(numbers) < len(told):
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
            self._wrong(INVALID_VALUE, "an InfoCode stands there twice")
        if _NAME not in codes:
            self._missing("the MultimediaDescription with InfoCode 25")

    def _check_description(self, description: _Element, code: int) -> None:
        if code in (_NAME, _DESCRIPTION):
            texts = list(description.iter(tag("Description")))
            if _child(description, "TextItems") is None or not texts:
                self._missing(f"TextItems with a Description for InfoCode {code}")
        elif code == _PICTURES:
            pictures = list(listed(description, "ImageItems"))
            if not pictures:
                self._missing(f"ImageItems for InfoCode {code}")
            if any(count(one.get("Category", "")) not in PICTURES for one in pictures):
                self._wrong(INVALID_VALUE, "Category of a picture is none of OTA's list PIC")

    def _check_room(self, room: _Element) -> None:
        kind = _child(room, "TypeRoom")
        if kind is None or kind.get(_ROOM_ID) is None:
            text = "RoomID is missing; a category is told of once, before its rooms"
            self._wrong(INVALID_ROOM, text)
        attributes = {*room.attrib} - {"Code"}
        if kind is not None:
            attributes |= {*kind.attrib} - {_ROOM_ID}
        names = {child.tag.rpartition("}")[2] for child in room} - {"TypeRoom"}
        if attributes or names:
            text = "a room after the first of its Code tells nothing but Code and RoomID"
            self._wrong(UNABLE, text)

    def _missing(self, what: str) -> None:
        self._wrong(MISSING, f"{what} is missing")

    def _wrong(self, code: int, text: str) -> None:
        self._problems.add(code, f"GuestRoom {self._at}: {text}")


def _child(element: _Element, name: str) -> _Element | None:
    return element.find(tag(name))
