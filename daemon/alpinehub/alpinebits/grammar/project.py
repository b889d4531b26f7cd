"""Converts a message to another protocol version.

An attribute or element that the target version does not have, or whose value it does not accept, is
dropped. If it is required there, the nearest optional element around it is dropped. Elements beyond
their maximum number are dropped, too. A required element that may be empty is added empty. No value
is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from lxml import etree

from alpinehub.alpinebits.document import NAMESPACE, tag
from alpinehub.alpinebits.grammar import schema
from alpinehub.alpinebits.grammar.notation import Choice, Element
from alpinehub.alpinebits.protocol import Protocol

_XSI = "{http://www.w3.org/2001/XMLSchema-instance}"

_Parts = Sequence[Element | Choice]


class Unfit(Exception):
    """The target version cannot carry the message at all; the text is for people."""


def project(root: etree._Element, protocol: Protocol) -> tuple[etree._Element, int]:
    """The message, valid in a version, and how many elements and attributes were dropped. White
    space between elements is removed. Raises: Unfit.
    """
    name = etree.QName(root).localname
    known = schema.element(name, protocol)
    if known is None:
        raise Unfit(f"AlpineBits {protocol.name} has no {name}")
    fitter = _Fitter()
    fitted = fitter.element(root, known)
    if fitted is None:
        raise Unfit(f"what {name} must have in AlpineBits {protocol.name} is not there")
    problem = schema.find_problem(fitted, name, protocol)
    if problem is not None:
        raise Unfit(problem)
    return fitted, _size(root) - _size(fitted) + fitter.added


def _size(element: etree._Element) -> int:
    """Elements and attributes, without those that only name a schema."""
    return sum(
        1 + sum(not str(name).startswith(_XSI) for name in one.attrib) for one in element.iter()
    )


class _Fitter:
    """Makes new elements of old ones. A method returns None if that is not possible."""

    def __init__(self) -> None:
        #: Elements that were not there before.
        self.added = 0

    def element(self, old: etree._Element, known: Element) -> etree._Element | None:
        """The element with the attributes and content that the version has."""
        made = _new(known.name)
        if known.kind in ("open", "anything"):
            made.attrib.update({k: v for k, v in old.attrib.items() if not str(k).startswith(_XSI)})
            made.text = old.text
            made.extend(_copy(child) for child in old)
            return made
        for attribute in known.attributes:
            value = old.get(attribute.name)
            if value is not None and schema.takes(attribute.type, str(value)):
                made.set(attribute.name, value)
            elif attribute.required:
                return None
        if known.type is not None:
            if len(old) or not schema.takes(known.type, old.text or ""):
                return None
            made.text = old.text
        elif known.kind == "mixed":
            made.text = old.text
        children = self._sequence(list(old), known.content)
        if children is None:
            return None
        made.extend(children)
        return made

    def _sequence(
        self, old: Sequence[etree._Element], parts: _Parts
    ) -> list[etree._Element] | None:
        made: list[etree._Element] = []
        for part in parts:
            found = self._place(old, part) if isinstance(part, Element) else self._choice(old, part)
            if found is None:
                return None
            made += found
        return made

    def _place(self, old: Sequence[etree._Element], part: Element) -> list[etree._Element] | None:
        """The elements at one place, up to their maximum number."""
        wanted = tag(part.name)
        fitted = (self.element(child, part) for child in old if child.tag == wanted)
        made = [one for one in fitted if one is not None][: part.most]
        if len(made) < part.least and (empty := self.element(_new(part.name), part)) is not None:
            while len(made) < part.least:
                made.append(_copy(empty))
                self.added += 1
        return made if len(made) >= part.least else None

    def _choice(self, old: Sequence[etree._Element], part: Choice) -> list[etree._Element] | None:
        if part.most == 1:
            return self._once(old, part)
        made: list[etree._Element] = []
        for child in old:  # each may be of another alternative: their order is kept
            for alternative in part.alternatives:
                if child.tag in _tags(alternative):
                    made += self._sequence([child], alternative) or ()
        return made if len(made) >= part.least else None

    def _once(self, old: Sequence[etree._Element], part: Choice) -> list[etree._Element] | None:
        """The first possible alternative; first those with an element in the message."""
        tags = {child.tag for child in old}
        present = [one for one in part.alternatives if tags & _tags(one)]
        for alternative in chain(present, part.alternatives):
            made = self._sequence(old, alternative)
            if made is not None:
                return made
        return None if part.least else []


def _tags(parts: _Parts) -> set[str]:
    return {tag(part.name) for part in parts if isinstance(part, Element)}


def _new(name: str) -> etree._Element:
    return etree.Element(tag(name), nsmap={None: NAMESPACE})  # type: ignore[dict-item]


def _copy(element: etree._Element) -> etree._Element:
    """Without the text behind it."""
    return etree.fromstring(etree.tostring(element, with_tail=False))
