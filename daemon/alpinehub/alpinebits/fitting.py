"""What was told in one protocol version as another tells it: what that cannot carry is left out
(`grammar/project.py`). The same here and in a child of the pool.
"""

from __future__ import annotations

from typing import Any

import msgspec

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.outcome import opening
from alpinehub.alpinebits.protocol import PROTOCOLS


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told of a hotel."""

    #: Name of the root element.
    response: str
    #: What follows its Success, in any version.
    content: bytes
    #: Of the hotel, as we call it, whatever it was called.
    code: str
    name: str
    protocol: str


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """How it is told."""

    #: What follows Success, as XML.
    inside: str = ""
    #: How many elements and attributes it lacks.
    dropped: int = 0
    #: Why it cannot be told at all.
    unfit: str = ""


def fit(told: Telling) -> Fitted:
    """The content in its version."""
    from lxml import etree

    from alpinehub.alpinebits.grammar.project import Unfit, project

    message = b"".join(
        (
            opening(told.response).encode(),
            b"<Success/>",
            told.content,
            f"</{told.response}>".encode(),
        )
    )
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_blank_text=True)
    root = etree.fromstring(message, parser)
    for name in ("HotelDescriptiveContent", "RatePlans"):
        for one in root.iter(tag(name)):
            one.set("HotelCode", told.code)
            one.set("HotelName", told.name)
    try:
        fitted, dropped = project(root, PROTOCOLS[told.protocol])
    except Unfit as reason:
        return Fitted(unfit=str(reason))
    inside = etree.tostring(fitted[-1], encoding="unicode", with_tail=False)
    return Fitted(inside=inside, dropped=dropped)


def fit_large(payload: dict[str, Any], session: object) -> Fitted:
    """The command `fit_message`: the fields of a Telling."""
    return fit(msgspec.convert(payload, Telling))
