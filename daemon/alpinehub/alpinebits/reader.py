"""Readers: how a kind of message is read, in the worker and in a child of the pool alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from alpinehub.alpinebits.document import LARGE_BYTES, MAX_BODY_BYTES, MAX_MARKUP
from alpinehub.alpinebits.grammar import parse
from alpinehub.alpinebits.protocol import Protocol

if TYPE_CHECKING:
    from lxml.etree import _Element

T = TypeVar("T")

#: Limits of a document with all rates or all free rooms of a large hotel.
INBOUND_BYTES, INBOUND_MARKUP = MAX_BODY_BYTES, 4 * MAX_MARKUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader(Generic[T]):
    """Reads one kind of message."""

    #: Name of its root element.
    root: str
    #: Reads a document that conforms to its schema: pure, and the same in every process.
    read: Callable[[_Element], T]
    #: If it may be large, the type of what is read: a child of the pool reads it (`large.READERS`),
    #: and msgspec carries it from there. None: the worker reads it.
    type: type[T] | None = None
    #: Largest document in bytes, and most tags in it.
    max_bytes: int = LARGE_BYTES
    max_markup: int = MAX_MARKUP


class Reading(Struct, frozen=True, kw_only=True):
    """The result of reading in another process."""

    #: MessagePack of what was read; None: a TransportError of this `status` and `text`.
    message: bytes | None = None
    status: int = 0
    text: str = ""


def read_here(data: bytes, protocol: Protocol, reader: Reader[T]) -> T:
    """Read a document in this process. Raises: TransportError."""
    return reader.read(parse(data, protocol, reader.root, max_markup=reader.max_markup))
