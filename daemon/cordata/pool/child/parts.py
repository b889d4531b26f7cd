"""What a command yields, on its way to the caller: as a stream, or as one list."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, msgpack

from cordata.core.pool.codec import encode
from cordata.core.pool.message import Chunk
from cordata.errors import FrameTooLarge
from cordata.pool.child.flow import Flow


class Chunks:
    """A stream, part by part."""

    def __init__(self, flow: Flow, id: int) -> None:
        self._flow, self._id = flow, id

    def add(self, value: Any) -> None:
        """The next part. Raises: FrameTooLarge."""
        chunk = Chunk(id=self._id, payload=value)
        connection = self._flow.connection
        connection.send(encode(chunk, max_bytes=connection.max_bytes))

    def value(self) -> None:
        """There is nothing left to send."""


class List:
    """What a generator gives to a caller who wants one result, no more than fits a frame."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count, self._body = limit, 0, bytearray()

    def add(self, value: Any) -> None:
        """The next one. Raises: FrameTooLarge."""
        self._body += msgpack.encode(value)
        self._count += 1
        if len(self._body) > self._limit:
            text = f"a list of more than {self._limit} bytes (max_frame_bytes)"
            raise FrameTooLarge(text, length_bytes=len(self._body), limit_bytes=self._limit)

    def value(self) -> Raw:
        """The array, with a head of 32 bits."""
        return Raw(b"\xdd" + self._count.to_bytes(4, "big") + bytes(self._body))
