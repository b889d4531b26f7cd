"""Names and limits of event streams: `account-7` is a stream of the category `account`.

A stream's bucket is a number made of its name: the same for ever and in every process, since it
is stored with each event. A subscription of P partitions has the stream in partition bucket % P.
"""

from __future__ import annotations

import re
import zlib

from cordata.errors import PermanentError

#: Buckets of stream names; partitions of one subscription at most.
BUCKETS, MAX_PARTITIONS = 65_536, 256
STREAM_CHARS = 200
TYPE_CHARS = 100
#: Of one event. Larger data is stored elsewhere, and the event says where.
PAYLOAD_BYTES, HEADERS_BYTES = 262_144, 16_384
#: Events of one append, and of one page.
MAX_EVENTS, MAX_PAGE = 1000, 500

_STREAM = re.compile(r"[^\s-][^\s]*\Z")


def category_of(stream: str) -> str:
    """The part before the first `-`; the whole name without one."""
    return stream.partition("-")[0]


def bucket_of(stream: str) -> int:
    """0 to BUCKETS - 1. Never change this: it is stored."""
    return zlib.crc32(stream.encode()) % BUCKETS


def check_stream(stream: str) -> None:
    """Raises: PermanentError when it cannot be the name of a stream."""
    if len(stream) > STREAM_CHARS or not _STREAM.match(stream) or not stream.isprintable():
        raise PermanentError(
            f"{stream[:STREAM_CHARS]!r} is no name of a stream",
            hint=f"category-id, printable, no spaces, {STREAM_CHARS} characters at most",
        )


def check_category(category: str) -> None:
    """Raises: PermanentError when no stream can be of this category."""
    check_stream(category)
    if "-" in category:
        raise PermanentError(
            f"{category!r} is no category",
            hint=f"what stands before the first -: {category_of(category)!r}",
        )


def check_event(type: str, payload_bytes: int, headers_bytes: int) -> None:
    """Raises: PermanentError when an event of this type and size is not taken."""
    if not type or len(type) > TYPE_CHARS or not type.isprintable():
        raise PermanentError(
            f"{type[:TYPE_CHARS]!r} is no type of an event",
            hint=f"printable, 1 to {TYPE_CHARS} characters",
        )
    for part, size, most in (
        ("payload", payload_bytes, PAYLOAD_BYTES),
        ("headers", headers_bytes, HEADERS_BYTES),
    ):
        if size > most:
            raise PermanentError(
                f"the {part} of {type!r} has {size:,} bytes, {most:,} are allowed",
                hint="keep what is big elsewhere and say in the event where",
            )


def check_page(limit: int) -> None:
    """Raises: PermanentError for a page that would be empty or too big."""
    if not 1 <= limit <= MAX_PAGE:
        raise PermanentError(f"a page of {limit} events; 1 to {MAX_PAGE} are given")
