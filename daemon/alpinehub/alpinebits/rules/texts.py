"""Texts in several languages: each language once in each form, and none that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpinehub.alpinebits.outcome import INVALID_VALUE
from alpinehub.alpinebits.rules.codes import is_language

if TYPE_CHECKING:
    from lxml.etree import _Element

    from alpinehub.alpinebits.rules.inbound import Problems


def check_texts(element: _Element, problems: Problems) -> None:
    """All texts inside an element; those with one parent belong together, where they are no items
    of a list with numbers of their own.
    """
    seen: dict[_Element, set[tuple[str, str, str]]] = {}
    for one in element.iter():
        language = one.get("Language")
        parent = one.getparent()
        if language is None or parent is None:
            continue
        if not is_language(language):
            problems.add(INVALID_VALUE, "Language is none of ISO 639-1")
        form = (language, one.get("TextFormat", ""), one.get("ListItem", ""))
        if form in seen.setdefault(parent, set()):
            problems.add(INVALID_VALUE, "a Language stands twice in one TextFormat")
        seen[parent].add(form)
