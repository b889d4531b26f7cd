"""How a kind of request is read: the same here, in a thread and in a child of the pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from alpinehub.alpinebits.bounds import LARGE_BYTES, MAX_BODY_BYTES
from alpinehub.alpinebits.document import MAX_MARKUP
from alpinehub.alpinebits.grammar import parse

if TYPE_CHECKING:
    from lxml.etree import _Element

    from alpinehub.alpinebits.protocol import Protocol

T = TypeVar("T")

#: Of a document that tells all rates or all free rooms of a large hotel.
PUSH_BYTES, PUSH_MARKUP = MAX_BODY_BYTES, 4 * MAX_MARKUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader(Generic[T]):
    """How a kind of request is read."""

    #: Name of its root element.
    root: str
    #: What a document says that is checked already: pure, and the same in every process.
    read: Callable[[_Element], T]
    #: What msgspec writes it as, and reads again.
    type: type[T]
    #: It may be large, and is in `large.READERS`.
    pooled: bool = False
    #: Longest document, and most tags in it.
    max_bytes: int = LARGE_BYTES
    max_markup: int = MAX_MARKUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of reading in another process."""

    #: MessagePack of what was read; None: refused, with `status` and `text`.
    told: bytes | None = None
    status: int = 0
    text: str = ""


def read_here(data: bytes, protocol: Protocol, reader: Reader[T]) -> T:
    """What a document says. Raises: TransportError."""
    return reader.read(parse(data, protocol, reader.root, max_markup=reader.max_markup))
