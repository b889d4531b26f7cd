"""XML from strangers into a tree: UTF-8, no DTD, no entities, no network, all of it bounded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from alpinehub.alpinebits.refusal import Refusal

if TYPE_CHECKING:
    from lxml.etree import _Element

NAMESPACE = "http://www.opentravel.org/OTA/2003/05"

#: The deepest guest-request message has 20 levels.
MAX_DEPTH = 32
#: Start, end and empty tags, comments and so on; each node costs the parser some 120 bytes.
MAX_MARKUP = 100_000

_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([^"']*)["']""")
_UTF8 = (b"utf-8", b"utf8", b"us-ascii", b"ascii")


def parse(data: bytes) -> _Element:
    """The root element of a document. Raises: Refusal (400) with what is wrong, for people."""
    # Imported here: lxml costs a worker 6 MB that it needs only once hotel software calls.
    from lxml import etree

    data = _check_bytes(data)
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
        raise Refusal(400, f"the XML cannot be parsed: line {line}, column {column}") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise Refusal(400, "a document type declaration is not allowed")
    _check_depth(root)
    return root


def _check_bytes(data: bytes) -> bytes:
    """What can be refused before a parser sees it; the data without a byte order mark."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    declared = _ENCODING.match(data[:200])
    if declared and declared[1].lower() not in _UTF8:
        raise Refusal(400, "the XML must be UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the XML is not UTF-8: byte {error.start}") from None
    if data.count(b"<") > MAX_MARKUP:
        raise Refusal(413, "the XML has too many elements")
    if _prolog_has_doctype(data):
        raise Refusal(400, "a document type declaration is not allowed")
    return data.strip(b" \t\r\n")


def _prolog_has_doctype(data: bytes) -> bool:
    """Whether a DTD stands before the root element, so that no parser has to see one."""
    at = 0
    while True:
        at = data.find(b"<", at)
        if at < 0:
            return False
        if data.startswith(b"<!DOCTYPE", at):
            return True
        closing = next(
            (
                end
                for start, end in ((b"<!--", b"-->"), (b"<?", b"?>"))
                if data.startswith(start, at)
            ),
            None,
        )
        if closing is None:
            return False  # the root element, or something that does not parse
        at = data.find(closing, at + 2)
        if at < 0:
            return False


def _check_depth(root: _Element) -> None:
    depth = 1
    level = [root]
    while level:
        if depth > MAX_DEPTH:
            raise Refusal(400, f"the XML is nested deeper than {MAX_DEPTH} elements")
        level = [child for element in level for child in element]
        depth += 1
