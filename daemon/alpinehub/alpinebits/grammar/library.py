"""All messages of the grammars, and their schemas: each is made when it is first met, so that a
worker carries what its clients use.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

from lxml import etree

from alpinehub.alpinebits.document import tag
from alpinehub.alpinebits.grammar.explain import explain
from alpinehub.alpinebits.grammar.notation import Element, Grammar, Line, message, read_grammar
from alpinehub.alpinebits.grammar.schema import write_schema
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol

_explaining = Lock()


@cache
def grammar() -> Grammar:
    """All files together: a fragment may be used in any."""
    found: dict[str, Line] = {}
    for path in sorted(Path(__file__).parent.glob("*.g")):
        found |= read_grammar(path.read_text("utf-8"), path.name)
    return found


def names(protocol: Protocol) -> list[str]:
    """The messages of a protocol version."""
    return [name for name in sorted(grammar()) if element(name, protocol) is not None]


def element(name: str, protocol: Protocol) -> Element | None:
    """A message in a protocol version; None: it has none."""
    return message(grammar(), name, protocol.year)


def find_problem(root: etree._Element, name: str, protocol: Protocol) -> str | None:
    """What is wrong with a message of this name, in a sentence; None: nothing."""
    schema = _schema(name, protocol.name)
    if schema is None:
        return f"AlpineBits {protocol.name} has no such message"
    if schema.validate(root):
        return None
    # Another thread may check against the same schema meanwhile, and leave its errors there.
    with _explaining:
        again = _schema_to_explain(name, protocol.name)
        assert again is not None
        try:
            again.assertValid(root)
        except etree.DocumentInvalid as error:
            return explain(str(error))
    return None


@lru_cache(maxsize=4096)
def takes(type_name: str, value: str) -> bool:
    """Whether a type of the grammars takes a value."""
    element = etree.Element(tag("Value"))
    element.text = value
    return bool(_value_schema(type_name).validate(element))


@cache
def _value_schema(type_name: str) -> etree.XMLSchema:
    root = Element("Value", type=type_name)
    return etree.XMLSchema(etree.fromstring(write_schema(root)))


def _build(name: str, protocol: str) -> etree.XMLSchema | None:
    root = element(name, PROTOCOLS[protocol])
    return None if root is None else etree.XMLSchema(etree.fromstring(write_schema(root)))


_schema = cache(_build)
_schema_to_explain = cache(_build)
