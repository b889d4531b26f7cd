"""What libxml2 has against a document, in one sentence: where, and never what the client wrote."""

from __future__ import annotations

import re

from alpinehub.alpinebits.document import NAMESPACE

_ELEMENT = re.compile(r"Element '(?:\{[^}]*\})?(?P<name>[^']*)'")
_ATTRIBUTE = re.compile(r"[Tt]he attribute '(?P<name>[^']*)' is (?P<what>required|not allowed)")
_VALUE = re.compile(r", attribute '(?P<name>[^']*)'")
_EXPECTED = re.compile(r"Expected is (?:one of )?\( (?P<names>[^)]*) \)")
_MAX_NAME_CHARS = 40


def explain(message: str) -> str:
    """The sentence."""
    element = _ELEMENT.match(message)
    name = _cut(element["name"]) if element else "the document"
    if attribute := _ATTRIBUTE.search(message):
        said = "missing" if attribute["what"] == "required" else "not allowed"
        return f"{name}/@{_cut(attribute['name'])} is {said}"
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
    """A name bounded, since the client may have chosen it."""
    plain = name.rsplit("}", 1)[-1]
    return plain if len(plain) <= _MAX_NAME_CHARS else f"{plain[:_MAX_NAME_CHARS]}…"
