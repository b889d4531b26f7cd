"""The places of a message: every element and attribute with how often it may stand there, as a
schema tells them, and as our grammar does.
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from alpinehub.alpinebits.grammar.notation import Choice, Element

XS = "{http://www.w3.org/2001/XMLSchema}"
Often = tuple[str, str]
ONCE: Often = ("1", "1")


def places_of_schema(schema: etree._Element, name: str) -> list[str]:
    """Of a message in an XSD document, in its order."""
    [root] = [one for one in schema.findall(f"{XS}element") if one.get("name") == name]
    return list(_Schema(schema).element(root, "", outermost=True))


class _Schema:
    def __init__(self, schema: etree._Element) -> None:
        named = [one for one in schema if one.get("name")]
        self._named = {(one.tag, _local(str(one.get("name")))): one for one in named}

    def element(self, one: etree._Element, path: str, outermost: bool = False) -> Iterator[str]:
        often = "" if outermost else _written(_often(one))
        if one.get("ref"):
            one = self._named[one.tag, _local(str(one.get("ref")))]
        path = f"{path}/{one.get('name')}{often}"
        kind = one.find(f"{XS}complexType")
        if kind is None and one.get("type"):
            kind = self._named.get((f"{XS}complexType", _local(str(one.get("type")))))
        yield path
        if kind is None:
            return
        if kind.get("mixed"):
            yield f"{path} mixed"
        content = kind.find(f"{XS}simpleContent")
        yield from self.inside(kind if content is None else content[0], path)

    def inside(self, kind: etree._Element, path: str) -> Iterator[str]:
        yield from sorted(self.attributes(kind, path))
        for part in kind:
            if part.tag in (f"{XS}sequence", f"{XS}choice", f"{XS}group"):
                yield from self.part(part, path)

    def attributes(self, kind: etree._Element, path: str) -> Iterator[str]:
        for one in kind:
            if one.tag == f"{XS}attribute":
                yield f"{path}/@{one.get('name')}{'!' if one.get('use') == 'required' else ''}"
            elif one.tag == f"{XS}attributeGroup":
                group = self._named[one.tag, _local(str(one.get("ref")))]
                yield from self.attributes(group, path)
            elif one.tag == f"{XS}anyAttribute":
                yield f"{path}/@*"

    def part(self, part: etree._Element, path: str) -> Iterator[str]:
        if part.tag == f"{XS}element":
            yield from self.element(part, path)
        elif part.tag == f"{XS}any":
            yield f"{path}/*"
        elif part.tag == f"{XS}group":
            yield from self.part(self._named[part.tag, _local(str(part.get("ref")))][0], path)
        elif part.tag in (f"{XS}sequence", f"{XS}choice"):
            # A choice of one, and a sequence once, are what is in them.
            chosen = part.tag == f"{XS}choice" and len(part) > 1
            assert chosen or _often(part) == ONCE
            for number, one in enumerate(part):
                inner = f"{path}|{number}{_written(_often(part))}" if chosen else path
                yield from self.part(one, inner)


def places_of_grammar(root: Element) -> list[str]:
    """Of a message of ours."""
    return list(_element(root, "", outermost=True))


def _element(one: Element, path: str, outermost: bool = False) -> Iterator[str]:
    often = "" if outermost else _written(_numbers(one))
    path = f"{path}/{one.name}{often}"
    yield path
    if one.kind == "mixed":
        yield f"{path} mixed"
    if one.kind == "anything":
        yield from (f"{path}/@*", f"{path}/*")
    yield from sorted(f"{path}/@{a.name}{'!' if a.required else ''}" for a in one.attributes)
    for part in one.content:
        yield from _part(part, path)


def _part(part: Element | Choice, path: str) -> Iterator[str]:
    if isinstance(part, Element):
        yield from _element(part, path)
        return
    for number, alternative in enumerate(part.alternatives):
        for one in alternative:
            yield from _part(one, f"{path}|{number}{_written(_numbers(part))}")


def _numbers(part: Element | Choice) -> Often:
    return str(part.least), "unbounded" if part.most is None else str(part.most)


def _often(part: etree._Element) -> Often:
    return str(part.get("minOccurs", "1")), str(part.get("maxOccurs", "1"))


def _written(often: Often) -> str:
    return "" if often == ONCE else f"{{{often[0]},{often[1]}}}"


def _local(name: str) -> str:
    return name.rsplit(":", 1)[-1]
