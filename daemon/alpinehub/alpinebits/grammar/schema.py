"""A message of a grammar as an XML Schema document, for libxml2 to check against: fast, exact in
its dates and numbers, and without holding the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.grammar.datatype import datatype
from alpinehub.alpinebits.grammar.notation import Choice, Element
from alpinehub.alpinebits.markup import attribute

_ANYTHING = (
    '<sequence><any processContents="lax" minOccurs="0" maxOccurs="unbounded"/></sequence>'
    '<anyAttribute processContents="lax"/>'
)


def write_schema(root: Element) -> str:
    """The document."""
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
        often = "" if outermost else _often(one)
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
        yield f"<choice{_often(part)}>"
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
            said = datatype(name)
            if said.members:
                members = " ".join(said.members)
                yield f'<simpleType name="{written}"><union memberTypes="{members}"/></simpleType>'
                continue
            yield f'<simpleType name="{written}"><restriction base="{said.base}">'
            if said.pattern:
                yield f'<pattern value="{attribute(said.pattern)}"/>'
            for facet, value in said.facets:
                yield f'<{facet} value="{value}"/>'
            for value in said.values:
                yield f'<enumeration value="{attribute(value)}"/>'
            yield "</restriction></simpleType>"


def _often(part: Element | Choice) -> str:
    most = "unbounded" if part.most is None else str(part.most)
    return f' minOccurs="{part.least}" maxOccurs="{most}"'
