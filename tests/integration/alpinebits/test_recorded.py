"""The grammars say of our own messages, and of changes of them, what was recorded."""

from __future__ import annotations

from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.recorded import FILE, read, valid_by_schema

from alpinehub.alpinebits.grammar import check
from alpinehub.alpinebits.protocol import PROTOCOLS

VERDICTS = read()


def valid_by_grammar(document: bytes) -> str:
    element = etree.fromstring(document)
    return "".join(str(int(check(element, one) is None)) for one in PROTOCOLS.values())


def test_grammars_say_what_was_recorded() -> None:
    said = [one._replace(valid=valid_by_grammar(one.document)) for one in VERDICTS]
    assert said == VERDICTS


def test_recorded_verdicts_are_still_those_of_the_official_schemas() -> None:
    said = [one._replace(valid=valid_by_schema(one.document)) for one in VERDICTS]
    assert said == VERDICTS, f"record {FILE.name} again: see recorded.py"


def test_verdicts_are_of_every_message_and_of_both_kinds() -> None:
    names = {str(path.relative_to(material.OWN)) for path in material.OWN.glob("*/**/*.xml")}
    assert {one.name for one in VERDICTS if not one.end} == names
    for at in range(len(PROTOCOLS)):
        assert 0.1 < sum(one.valid[at] == "1" for one in VERDICTS) / len(VERDICTS) < 0.9
