"""The grammars: the schema of each message in all protocol versions, in a notation of the hub.

    *.g           one file for each family of messages
    notation.py   parses the notation
    schema.py     makes an XML Schema of a message in one version, and validates documents with it
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
    """Parse and validate a message whose root element is `root`. Raises: TransportError."""
    element = document.parse(data, max_markup=max_markup)
    if _name(element) != root:
        raise _does_not_conform(f"{root} in namespace {NAMESPACE} expected")
    problem = check(element, protocol)
    if problem is not None:
        raise _does_not_conform(problem)
    return element


def check(element: _Element, protocol: Protocol) -> str | None:
    """What is wrong with a message, in a sentence that names the place; None: it is valid."""
    # Imported here: lxml and the grammars take 7 MB of a worker, which are needed only when hotel
    # software calls.
    from alpinehub.alpinebits.grammar import schema

    return schema.find_problem(element, _name(element), protocol)


def _name(element: _Element) -> str:
    """The name of an element in the AlpineBits namespace; "" if it is in another one."""
    namespace, _, name = str(element.tag).rpartition("}")
    return name if namespace == f"{{{NAMESPACE}" else ""


def _does_not_conform(problem: str) -> TransportError:
    return TransportError(400, f"the request does not conform to the schema: {problem}")
