"""Names and limits of event streams: `account-7` is a stream of the category `account`.

A stream's bucket is a hash of its name, stored with each event. A subscription with P partitions
handles the stream in partition bucket % P.
"""

from __future__ import annotations

import re
import zlib

from cordata.errors import PermanentError

#: Number of buckets; limit of the partitions of one subscription.
BUCKETS, MAX_PARTITIONS = 65_536, 256
STREAM_CHARS = 200
TYPE_CHARS = 100
#: Limits of one event. Store larger data elsewhere, and write into the event where.
PAYLOAD_BYTES, HEADERS_BYTES = 262_144, 16_384
#: Limits of the events in one append, and in one page.
MAX_EVENTS, MAX_PAGE = 1000, 500

_STREAM = re.compile(r"[^\s-][^\s]*\Z")


def category_of(stream: str) -> str:
    """The part before the first `-`; the whole name without one."""
    return stream.partition("-")[0]


def bucket_of(stream: str) -> int:
    """0 to BUCKETS - 1. Never change this function: its results are stored."""
    return zlib.crc32(stream.encode()) % BUCKETS


def check_stream(stream: str) -> None:
    """Raises: PermanentError when `stream` is not a valid name."""
    if len(stream) > STREAM_CHARS or not _STREAM.match(stream) or not stream.isprintable():
        raise PermanentError(
            f"{stream[:STREAM_CHARS]!r} is not a valid stream name",
            hint=f"it must be category-id, printable, no spaces, at most {STREAM_CHARS} characters",
        )


def check_category(category: str) -> None:
    """Raises: PermanentError when `category` is not a valid name."""
    check_stream(category)
    if "-" in category:
        raise PermanentError(
            f"{category!r} is not a valid category",
            hint=f"a category ends before the first -: {category_of(category)!r}",
        )


def check_event(type: str, payload_bytes: int, headers_bytes: int) -> None:
    """Raises: PermanentError when the type is not valid or the event is too large."""
    if not type or len(type) > TYPE_CHARS or not type.isprintable():
        raise PermanentError(
            f"{type[:TYPE_CHARS]!r} is not a valid event type",
            hint=f"it must be printable and have 1 to {TYPE_CHARS} characters",
        )
    for part, size, most in (
        ("payload", payload_bytes, PAYLOAD_BYTES),
        ("headers", headers_bytes, HEADERS_BYTES),
    ):
        if size > most:
            raise PermanentError(
                f"the {part} of {type!r} has {size:,} bytes; {most:,} are allowed",
                hint="store large data elsewhere and write into the event where",
            )


def check_page(limit: int) -> None:
    """Raises: PermanentError when `limit` is not from 1 to MAX_PAGE."""
    if not 1 <= limit <= MAX_PAGE:
        raise PermanentError(f"a page cannot have {limit} events; 1 to {MAX_PAGE} are allowed")
