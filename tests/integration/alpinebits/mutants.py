"""Small changes of a message, right or wrong: what one checker takes, another must take."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

from lxml import etree

NS = "{http://www.opentravel.org/OTA/2003/05}"
#: Values that some type takes and another does not.
VALUES = (
    *("", "x", " ", "0", "00", "1", "3", " 3 ", "+3", "-1", "1.5", ".5", "5.", "1e3", "9" * 5000),
    *("a" * length for length in (2, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 255, 256)),
    *("2022-02-30", "2024-02-29", " 2024-02-29 ", "2024-02-29Z", "2022-1-1", "0000-01-01"),
    *("2022-02-30T00:00:00Z", "2024-02-29T24:00:00", " 2022-01-01T00:00:00+14:00 "),
    *("2022-01-01T00:00:00+14:01", "-0044-01-01T00:00:00", "12022-01-01T00:00:00.5Z"),
    *("2022-01-01T24:00:01", "2100-02-29T00:00:00Z", "12:00:00", "24:00:00", "29:59:59"),
    *"true TRUE de DE deu d AT EUR CHF http://a ftp://a https://".split(),
    *("a@b", "a b@c", "@", "+39", "39 1", "P7N", "P7D", "P N", "--12-24", "12-24", "0011", "10"),
    *("11", "12", "13", "14", "15", "16", "18", "23", "25", "35", "100", "021", "5.ABC", "1234"),
    *("PlainText", "HTML", "Open", "New", "Full", "Overlay", "CompleteSet", "SetLimit", "PETS"),
    *("ALPINEBITS", "HOTEL", "ROOMTYPE", "Male", "newsletter:yes", "additional info", "title"),
    *("ALPINEBITS_SEND_HANDSHAKE", "ALPINEBITS_SEND_INVENTORY", "ALPINEBITS_HANDSHAKE"),
)
ATTRIBUTES = (
    *"""
    HotelCode HotelName Start End Version TimeStamp Type ID Code foo RecordID Status Language
    TextFormat RoomType RoomID CurrencyCode Count RoomStayReservation LastModifyDateTime
    RoomStayGroupID AreaID MealPlanCode CheckInTime InvCode AllInvCode RequestCode Name Remark
    Duration
    """.split(),
    "{http://www.w3.org/XML/1998/namespace}lang",
    "{http://www.w3.org/2001/XMLSchema-instance}schemaLocation",
)


def mutants(document: bytes, count: int, seed: int = 0) -> Iterator[etree._Element]:
    """So many changed copies of a message, as they are read from bytes."""
    rnd = random.Random(seed)
    original = etree.fromstring(document, etree.XMLParser(remove_comments=True))
    for _ in range(count):
        root = copy.deepcopy(original)
        for _ in range(rnd.choice((1, 1, 2))):
            _mutate(root, rnd)
        yield etree.fromstring(etree.tostring(root))


def _mutate(root: etree._Element, rnd: random.Random) -> None:
    elements = list(root.iter())
    element = rnd.choice(elements)
    change = rnd.choice((_value, _value, _value, _add, _omit, _remove, _insert, _double, _swap))
    (change if rnd.random() < 0.9 else rnd.choice((_text, _rename)))(element, elements, rnd)


def _value(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    if element.attrib:
        element.set(rnd.choice([str(name) for name in element.attrib]), rnd.choice(VALUES))
    else:
        _text(element, elements, rnd)


def _add(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    element.set(rnd.choice(ATTRIBUTES), rnd.choice(VALUES))


def _omit(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    if element.attrib:
        del element.attrib[rnd.choice([str(name) for name in element.attrib])]


def _remove(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def _insert(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    """Not the outermost: inside of what takes anything, libxml2 would check it as a message."""
    if len(elements) > 1:
        other = copy.deepcopy(rnd.choice(elements[1:]))
        element.insert(rnd.randrange(len(element) + 1), other)


def _double(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    if element.getparent() is not None:
        for _ in range(rnd.choice((1, 1, 2, 4))):
            element.addnext(copy.deepcopy(element))


def _swap(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    before = element.getprevious()
    if before is not None:
        element.addnext(before)


def _text(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    element.text = rnd.choice([None, "\n", *VALUES])


def _rename(element: etree._Element, elements: list[etree._Element], rnd: random.Random) -> None:
    if element.getparent() is not None:
        element.tag = rnd.choice([f"{NS}Foo", "Success", rnd.choice(elements).tag])
