"""Whatever push conforms to the schema is read, by rules that fail for none; and what they take can
be kept, changed, and told in every version.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from lxml import etree
from tests.examples import examples
from tests.integration.alpinebits import material
from tests.integration.alpinebits.mutants import mutants
from tests.integration.alpinebits.specimen import specimen

from alpinehub.alpinebits.actions.freerooms import apply_message
from alpinehub.alpinebits.grammar import check, schema
from alpinehub.alpinebits.inbound import Document
from alpinehub.alpinebits.large import READERS, StoredContent, convert
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol
from alpinehub.alpinebits.reader import Reader
from alpinehub.alpinebits.rules.content import ContentMessage
from alpinehub.alpinebits.rules.freerooms import FreeRoomsMessage
from alpinehub.alpinebits.rules.overlay import apply_overlay, select_days, title_only
from alpinehub.alpinebits.rules.rate_plans import RatePlansMessage

#: Of each message; EXAMPLES makes it so many times more.
MUTANTS = max(15, examples(15))
NOW_US = 1_790_000_000_000_000
PUSHES = [
    (action, version)
    for action, reader in READERS.items()
    for version, protocol in PROTOCOLS.items()
    if schema.element(reader.root, protocol) is not None
]


def documents(root: str, protocol: Protocol) -> Iterator[etree._Element]:
    """Messages that conform: with everything in them, the samples, and what is made of both."""
    known = schema.element(root, protocol)
    assert known is not None
    wholes = [etree.tostring(specimen(known, choose)) for choose in range(3)]
    for path in material.samples("messages/*/*RQ*.xml", "rules/*/*/*.xml"):
        sample = path.read_bytes()
        if etree.QName(etree.fromstring(sample)).localname == root:
            wholes.append(sample)
    for seed, whole in enumerate(wholes):
        for one in (etree.fromstring(whole), *mutants(whole, MUTANTS, seed=seed)):
            again = etree.fromstring(etree.tostring(one), etree.XMLParser(remove_comments=True))
            if check(again, protocol) is None:
                yield again


@pytest.mark.parametrize(("action", "version"), PUSHES)
def test_any_push_that_conforms_is_read_kept_and_told(action: str, version: str) -> None:
    reader: Reader[Any] = READERS[action]
    protocol = PROTOCOLS[version]
    taken = count = 0
    for document in documents(reader.root, protocol):
        told = reader.read(document)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=reader.type) == told
        count += 1
        taken += use(told, protocol)
    assert count > 20 and taken


def use(told: object, protocol: Protocol) -> bool:
    """What becomes of a message; whether it was taken."""
    if isinstance(told, FreeRoomsMessage) and not told.findings:
        first, _ = apply_message(told, Document(), NOW_US)
        known = Document(packed=zlib.compress(first))
        apply_message(told, known, NOW_US)
        return True
    if isinstance(told, ContentMessage) and not told.findings:
        content = b"<HotelDescriptiveContents>%b</HotelDescriptiveContents>" % told.content
        for other in PROTOCOLS.values():
            respond("OTA_HotelDescriptiveInfoRS", content, other)
        return True
    if isinstance(told, RatePlansMessage) and not told.findings:
        for plan in told.plans:
            made = apply_overlay(plan.body, plan.body)
            for part in (made, title_only(made), select_days(made, None, None)):
                respond("OTA_HotelRatePlanRS", b"<RatePlans>%b</RatePlans>" % part, protocol)
        return True
    return not getattr(told, "findings", ())


@cache  # versions have most of their messages, and so of the contents, in common
def respond(response: str, content: bytes, protocol: Protocol) -> None:
    stored = StoredContent(
        response=response, content=content, code="H1", name="H", protocol=protocol.name
    )
    assert convert(stored).problem == ""
