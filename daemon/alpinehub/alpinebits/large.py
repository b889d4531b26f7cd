"""The commands that a child of the pool runs: reads a large document, converts large content.

The child imports this module, and no more of the hub than it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from alpinehub.alpinebits import action
from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import opening
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import Reader, Reading, read_here
from alpinehub.alpinebits.rules.acknowledgement import REPORT
from alpinehub.alpinebits.rules.content import INFO, INVENTORY
from alpinehub.alpinebits.rules.events import EVENTS
from alpinehub.alpinebits.rules.freerooms import AVAIL, COUNTS
from alpinehub.alpinebits.rules.rate_plans import RATES
from alpinehub.alpinebits.transport_error import TransportError

#: By action.
READERS: Mapping[str, Reader[Any]] = {
    action.ACKNOWLEDGE: REPORT,
    action.AVAIL: AVAIL,
    action.INV_COUNT: COUNTS,
    action.INVENTORY_PUSH: INVENTORY,
    action.INFO_PUSH: INFO,
    action.RATE_PLANS: RATES,
    action.EVENT_REPORTS: EVENTS,
}


def read_large(payload: dict[str, Any], session: object) -> Reading:
    """The command `read_message`: {document, protocol, action}."""
    protocol, reader = PROTOCOLS[payload["protocol"]], READERS[payload["action"]]
    try:
        message = read_here(payload["document"], protocol, reader)
    except TransportError as problem:
        return Reading(status=problem.status, text=problem.text)
    return Reading(message=msgspec.msgpack.encode(message))


class StoredContent(msgspec.Struct, frozen=True, kw_only=True):
    """Stored hotel data, to be converted for a response."""

    #: Name of the root element of the response.
    response: str
    #: The XML that follows its Success, in any protocol version.
    content: bytes
    #: The hotel's current code and name, which replace those in the content.
    code: str
    name: str
    #: The protocol version of the response.
    protocol: str


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The content in the protocol version of the response."""

    #: The XML that follows Success.
    content: str = ""
    #: How many elements and attributes were left out.
    dropped: int = 0
    #: Why the version cannot carry the content at all; "": it can.
    problem: str = ""


def convert(stored: StoredContent) -> Converted:
    """The content in the protocol version of its response."""
    from lxml import etree

    from alpinehub.alpinebits.grammar.project import Unfit, project

    message = b"".join(
        (
            opening(stored.response).encode(),
            b"<Success/>",
            stored.content,
            f"</{stored.response}>".encode(),
        )
    )
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_blank_text=True)
    root = etree.fromstring(message, parser)
    for name in ("HotelDescriptiveContent", "RatePlans"):
        for one in root.iter(tag(name)):
            one.set("HotelCode", stored.code)
            one.set("HotelName", stored.name)
    try:
        made, dropped = project(root, PROTOCOLS[stored.protocol])
    except Unfit as reason:
        return Converted(problem=str(reason))
    content = etree.tostring(made[-1], encoding="unicode", with_tail=False)
    return Converted(content=content, dropped=dropped)


def convert_large(payload: dict[str, Any], session: object) -> Converted:
    """The command `convert_content`: the fields of a StoredContent."""
    return convert(msgspec.convert(payload, StoredContent))
