"""The grammars: what a message may look like in each protocol version, in our own notation.

    *.g           one file for each family of messages
    notation.py   reads them
    schema.py     makes an XML Schema of a message in one version, and checks documents against it
    project.py    converts a document to another version

The schemas of the AlpineBits Alliance are not shipped; tests prove that these grammars accept the
same documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpinehub.alpinebits import document
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits.transport_error import TransportError

if TYPE_CHECKING:
    from lxml.etree import _Element


def parse(
    data: bytes, protocol: Protocol, root: str, *, max_markup: int = document.MAX_MARKUP
) -> _Element:
    """The root element of a message of that name, bounded and checked. Raises: TransportError."""
    element = document.parse(data, max_markup=max_markup)
    if _name(element) != root:
        raise _does_not_conform(f"{root} in namespace {NAMESPACE} expected")
    problem = check(element, protocol)
    if problem is not None:
        raise _does_not_conform(problem)
    return element


def check(element: _Element, protocol: Protocol) -> str | None:
    """What is wrong with a message, in a sentence that names the place; None: it is valid."""
    # Imported here: lxml and the grammars cost a worker 7 MB that it needs only once hotel
    # software calls.
    from alpinehub.alpinebits.grammar import schema

    return schema.find_problem(element, _name(element), protocol)


def _name(element: _Element) -> str:
    """The name of an element that is in the one namespace there is, else ""."""
    namespace, _, name = str(element.tag).rpartition("}")
    return name if namespace == f"{{{NAMESPACE}" else ""


def _does_not_conform(problem: str) -> TransportError:
    return TransportError(400, f"the request does not conform to the schema: {problem}")
