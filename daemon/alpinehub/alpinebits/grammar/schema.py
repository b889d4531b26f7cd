"""Validates messages: the grammar of a message is written as XML Schema, which libxml2 applies.

libxml2 is fast, exact in dates and numbers, and does not hold the interpreter lock. A schema is
made when its message first comes, so that a worker has in memory only those that its clients use.
An error of libxml2 becomes one sentence that names the place and does not repeat the client's data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from lxml import etree

from alpinehub.alpinebits.document import NAMESPACE, escape_attribute, tag
from alpinehub.alpinebits.grammar.notation import (
    Choice,
    Element,
    Grammar,
    Line,
    datatype,
    message,
    read_grammar,
)
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol

_ANYTHING = (
    '<sequence><any processContents="lax" minOccurs="0" maxOccurs="unbounded"/></sequence>'
    '<anyAttribute processContents="lax"/>'
)

_ELEMENT = re.compile(r"Element '(?:\{[^}]*\})?(?P<name>[^']*)'")
_ATTRIBUTE = re.compile(r"[Tt]he attribute '(?P<name>[^']*)' is (?P<what>required|not allowed)")
_VALUE = re.compile(r", attribute '(?P<name>[^']*)'")
_EXPECTED = re.compile(r"Expected is (?:one of )?\( (?P<names>[^)]*) \)")
_MAX_NAME_CHARS = 40
#: Size of the pieces of a stream that is validated. A message above it is large, a text above it is
#: long.
_PIECE_BYTES = 64 * 1024


@cache
def grammar() -> Grammar:
    """All grammar files together: each may use the fragments of the others."""
    found: dict[str, Line] = {}
    for path in sorted(Path(__file__).parent.glob("*.g")):
        found |= read_grammar(path.read_text("utf-8"), path.name)
    return found


def element(name: str, protocol: Protocol) -> Element | None:
    """A message in a protocol version; None: it has none."""
    return message(grammar(), name, protocol.year)


def find_problem(root: etree._Element, name: str, protocol: Protocol) -> str | None:
    """What is wrong with a message of this name, in a sentence; None: nothing.

    A large message is validated as a stream: lxml finds the path of each error in a tree by
    counting the elements before it, which takes minutes for 150,000 errors. One with a long text is
    validated as a tree: in a stream, libxml2 copies the text read so far again at each line and
    each reference.
    """
    schema = _schema(name, protocol.name)
    if schema is None:
        return f"AlpineBits {protocol.name} has no such message"
    document = etree.tostring(root, encoding="utf-8")
    is_large = len(document) > _PIECE_BYTES
    if is_large and max(map(len, document.split(b"<"))) <= _PIECE_BYTES:
        return _find_in_stream(document, schema)
    if schema.validate(root):
        return None
    # A schema object has one list of errors for all threads, so errors come from one of their own,
    # which is made in 0.5 ms.
    again = _build(name, protocol.name)
    assert again is not None
    try:
        again.assertValid(root)
    except etree.DocumentInvalid as error:
        return explain(str(error))
    return None


def _find_in_stream(document: bytes, schema: etree.XMLSchema) -> str | None:
    """The first problem of a message; nothing is validated beyond its piece."""
    # Entities are left alone: libxml2 takes the text "&#38;" in a value for its own "&" otherwise.
    parser = etree.XMLParser(
        schema=schema,
        target=_NoTree(),  # type: ignore[arg-type] # it needs no other methods
        huge_tree=True,
        resolve_entities=False,
    )
    for start in range(0, len(document), _PIECE_BYTES):
        parser.feed(document[start : start + _PIECE_BYTES])
        if parser.feed_error_log:
            break
    else:
        with suppress(etree.XMLSyntaxError):
            parser.close()
    errors = parser.feed_error_log
    return explain(errors[0].message) if errors else None


class _NoTree:
    """The target of a parser that only validates."""

    def close(self) -> None:
        """The end of the document."""


def takes(type_name: str, value: str) -> bool:
    """Whether a value is valid for a type of the grammars."""
    element = etree.Element(tag("Value"))
    element.text = value
    return bool(_value_schema(type_name).validate(element))


@cache
def _value_schema(type_name: str) -> etree.XMLSchema:
    root = Element("Value", type=type_name)
    return etree.XMLSchema(etree.fromstring(write_schema(root)))


@cache  # 20 kB at most; to write it takes as long as libxml2 takes to read it
def _text_of(name: str, protocol: str) -> str | None:
    root = element(name, PROTOCOLS[protocol])
    return None if root is None else write_schema(root)


def _build(name: str, protocol: str) -> etree.XMLSchema | None:
    text = _text_of(name, protocol)
    return None if text is None else etree.XMLSchema(etree.fromstring(text))


_schema = cache(_build)


def write_schema(root: Element) -> str:
    """A message as an XML Schema document."""
    writer = _Writer()
    element = "".join(writer.element(root, outermost=True))
    return (
        f'<schema xmlns="http://www.w3.org/2001/XMLSchema" xmlns:t="{NAMESPACE}" '
        f'targetNamespace="{NAMESPACE}" elementFormDefault="qualified">'
        f"{''.join(writer.types())}{element}</schema>"
    )


class _Writer:
    """Writes elements, and remembers which types they use."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def element(self, one: Element, *, outermost: bool = False) -> Iterator[str]:
        often = "" if outermost else _occurrences(one)
        if one.kind == "open":
            yield f'<element name="{one.name}"{often}/>'
        elif one.type is not None and not one.attributes:
            yield f'<element name="{one.name}"{often} type="{self._type(one.type)}"/>'
        else:
            mixed = ' mixed="true"' if one.kind == "mixed" else ""
            inside = "".join(self._inside(one))
            yield f'<element name="{one.name}"{often}><complexType{mixed}>{inside}'
            yield "</complexType></element>"

    def _inside(self, one: Element) -> Iterator[str]:
        if one.kind == "anything":
            yield _ANYTHING
            return
        attributes = "".join(self._attributes(one))
        if one.type is not None:
            base = self._type(one.type)
            yield f'<simpleContent><extension base="{base}">{attributes}'
            yield "</extension></simpleContent>"
            return
        if one.content:
            yield from self._sequence(one.content)
        yield attributes

    def _sequence(self, content: tuple[Element | Choice, ...]) -> Iterator[str]:
        yield "<sequence>"
        for part in content:
            yield from self._part(part)
        yield "</sequence>"

    def _part(self, part: Element | Choice) -> Iterator[str]:
        if isinstance(part, Element):
            yield from self.element(part)
            return
        yield f"<choice{_occurrences(part)}>"
        for alternative in part.alternatives:
            if len(alternative) == 1:
                yield from self._part(alternative[0])
            else:
                yield from self._sequence(alternative)
        yield "</choice>"

    def _attributes(self, one: Element) -> Iterator[str]:
        for attr in one.attributes:
            use = ' use="required"' if attr.required else ""
            yield f'<attribute name="{attr.name}" type="{self._type(attr.type)}"{use}/>'

    def _type(self, name: str) -> str:
        return "t:" + self._names.setdefault(name, f"type{len(self._names)}")

    def types(self) -> Iterator[str]:
        """The types that were used."""
        for name, written in self._names.items():
            type_ = datatype(name)
            if type_.members:
                members = " ".join(type_.members)
                yield f'<simpleType name="{written}"><union memberTypes="{members}"/></simpleType>'
                continue
            yield f'<simpleType name="{written}"><restriction base="{type_.base}">'
            if type_.pattern:
                yield f'<pattern value="{escape_attribute(type_.pattern)}"/>'
            for facet, value in type_.facets:
                yield f'<{facet} value="{value}"/>'
            for value in type_.values:
                yield f'<enumeration value="{escape_attribute(value)}"/>'
            yield "</restriction></simpleType>"


def _occurrences(part: Element | Choice) -> str:
    most = "unbounded" if part.most is None else str(part.most)
    return f' minOccurs="{part.least}" maxOccurs="{most}"'


def explain(message: str) -> str:
    """An error of libxml2 as one sentence."""
    element = _ELEMENT.match(message)
    name = _cut(element["name"]) if element else "the document"
    if attribute := _ATTRIBUTE.search(message):
        problem = "missing" if attribute["what"] == "required" else "not allowed"
        return f"{name}/@{_cut(attribute['name'])} is {problem}"
    if value := _VALUE.search(message):
        return f"{name}/@{_cut(value['name'])} is not valid"
    if "This element is not expected" in message:
        return f"{name} is not allowed here{_expected(message)}"
    if "Missing child element" in message:
        return f"{name} lacks an element{_expected(message)}"
    if "content type is empty" in message:
        return f"{name} must be empty"
    if "content type is 'element-only'" in message:
        return f"{name} holds text where only elements may be"
    if "Element content is not allowed" in message:
        return f"{name} may not hold elements"
    return f"the text of {name} is not valid"


def _expected(message: str) -> str:
    found = _EXPECTED.search(message)
    if not found:
        return ""
    names = [name.strip().removeprefix(f"{{{NAMESPACE}}}") for name in found["names"].split(",")]
    return f": {' or '.join(names[:5])} expected"


def _cut(name: str) -> str:
    """A name, shortened, since the client may have chosen it."""
    plain = name.rsplit("}", 1)[-1]
    return plain if len(plain) <= _MAX_NAME_CHARS else f"{plain[:_MAX_NAME_CHARS]}…"
