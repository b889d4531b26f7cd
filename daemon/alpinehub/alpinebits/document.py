"""XML: parses untrusted documents (UTF-8, no DTD, no entities, no network, bounded in size and
depth), and escapes text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from alpinehub.alpinebits.transport_error import TransportError

if TYPE_CHECKING:
    from lxml.etree import _Element

NAMESPACE = "http://www.opentravel.org/OTA/2003/05"

#: Largest body, compressed or not: all rate plans of a large hotel are 3 to 6 MB.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
#: Larger requests are rare: 1 MiB acknowledges 10,000 guest requests.
LARGE_BYTES: Final = 2 * 1024 * 1024
#: The deepest guest-request message has 20 levels.
MAX_DEPTH = 32
#: Start, end and empty tags, comments and so on; each node costs the parser some 120 bytes.
MAX_MARKUP = 100_000
#: Of one element; no message has 20. libxml2 before 2.12 compares each attribute with all others:
#: the 100,000 that fit into a request would take it minutes.
MAX_ATTRIBUTES = 256

_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([^"']*)["']""")
_COMMENT_OR_PI = re.compile(rb"[^<]*(?:<!(?=--).*?-->|<\?.*?\?>)", re.DOTALL)
_QUOTED = re.compile(rb"\"[^\"]*\"|'[^']*'")
_UTF8 = (b"utf-8", b"utf8", b"us-ascii", b"ascii")

# XML 1.0, production Char: no other character may be in a document, not even as a reference.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tag(name: str) -> str:
    """The qualified name of an AlpineBits element, as a tree has it."""
    return f"{{{NAMESPACE}}}{name}"


def child(element: _Element, name: str) -> _Element | None:
    """The first child with this name."""
    return element.find(tag(name))


def listed(element: _Element, name: str) -> Iterable[_Element]:
    """The children of the child with this name; none if there is no such child."""
    found = child(element, name)
    return () if found is None else found


def descendants(element: _Element, name: str) -> Iterator[_Element]:
    """The elements with this name, at any depth, in the order of the document."""
    return element.iter(tag(name))


def descendant(element: _Element, name: str) -> _Element | None:
    """The first element with this name, at any depth."""
    return next(descendants(element, name), None)


def canonical(element: _Element) -> bytes:
    """An element as exclusive canonical XML (C14N), without the text after it.

    Raises: TransportError for what has no such form: a namespace that is a relative URI.
    """
    from lxml import etree

    try:
        return etree.tostring(element, method="c14n", exclusive=True, with_tail=False)
    except etree.C14NError:
        raise TransportError(400, "a namespace of the XML is no absolute URI") from None


def parse(data: bytes, *, max_markup: int = MAX_MARKUP) -> _Element:
    """The root element of a document. Raises: TransportError (400, 413); its text says why."""
    # Imported here: lxml takes 6 MB of a worker, which are needed only when hotel software calls.
    from lxml import etree

    data = _check_bytes(data, max_markup)
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        raise TransportError(
            400, f"the XML cannot be parsed: line {line}, column {column}"
        ) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise TransportError(400, "a document type declaration is not allowed")
    if root.xpath("boolean(/" + "*/" * MAX_DEPTH + "*)"):
        raise TransportError(400, f"the XML is nested deeper than {MAX_DEPTH} elements")
    return root


def _check_bytes(data: bytes, max_markup: int) -> bytes:
    """The data without a byte order mark. Raises: TransportError, before anything is parsed, for a
    document that is not UTF-8, has too many tags or attributes, or has a DTD.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    declared = _ENCODING.match(data[:200])
    if declared and declared[1].lower() not in _UTF8:
        raise TransportError(400, "the XML must be UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TransportError(400, f"the XML is not UTF-8: byte {error.start}") from None
    if data.count(b"<") > max_markup:
        raise TransportError(413, "the XML has too many elements")
    if any(_has_too_many_attributes(piece) for piece in data.split(b"<")):
        raise TransportError(400, "an element of the XML has too many attributes")
    if _prolog_has_doctype(data):
        raise TransportError(400, "a document type declaration is not allowed")
    return data.strip(b" \t\r\n")


def _has_too_many_attributes(piece: bytes) -> bool:
    """Whether a tag has too many attributes. `piece` is the text between two "<", which XML does
    not allow inside a tag.
    """
    if piece.count(b"=") <= MAX_ATTRIBUTES or piece[:1] in (b"!", b"?"):
        return False
    tag, _, _ = _QUOTED.sub(b"", piece).partition(b">")
    return tag.count(b"=") > MAX_ATTRIBUTES


def _prolog_has_doctype(data: bytes) -> bool:
    """Whether there is a DTD before the root element. Found before the parser reads it."""
    at = 0
    while skipped := _COMMENT_OR_PI.match(data, at):
        at = skipped.end()
    return data.startswith(b"<!DOCTYPE", data.find(b"<", at))


def clean(value: str) -> str:
    """The value without control characters, lone surrogates and other non-XML characters."""
    return _ILLEGAL.sub("", value)


def escape_text(value: str) -> str:
    """A value as element content. It must be `clean`."""
    # `str.translate` takes 10 us for 140 characters if one of them is no ASCII, this 0.5 us.
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return value.replace("\r", "&#13;")


def escape_attribute(value: str) -> str:
    """A value for between double quotes. It must be `clean`. Line ends and tabs become references,
    because a parser would turn them into spaces.
    """
    value = escape_text(value).replace('"', "&quot;")
    return value.replace("\t", "&#9;").replace("\n", "&#10;")
