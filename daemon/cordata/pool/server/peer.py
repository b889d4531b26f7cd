"""What a connection of the manager asks of whoever understands its frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordata.core.frame import TooLarge
from cordata.core.pool.message import ErrorFrame

if TYPE_CHECKING:
    from cordata.pool.server.link import Link


class Peer(Protocol):
    """The other side of a connection, by its role."""

    def take(self, frame: bytes) -> None:
        """One whole frame. Raises: ProtocolError; the connection ends with it."""

    def too_large(self, frame: TooLarge) -> None:
        """A frame that was dropped."""

    def lost(self) -> None:
        """The connection has ended."""

    def blocked(self, yes: bool) -> None:
        """The other side does not read, or reads again."""


class Stranger(Peer, Protocol):
    """The peer of a connection without hello."""

    def __init__(self, link: Link) -> None: ...


class Nobody:
    """Who is at the other end of a connection that has ended."""

    def take(self, frame: bytes) -> None:
        """Nothing comes any more."""

    def too_large(self, frame: TooLarge) -> None:
        """Nor is anything dropped."""

    def lost(self) -> None:
        """It is."""

    def blocked(self, yes: bool) -> None:
        """Nothing is sent."""

    def hold(self, yes: bool) -> None:
        """A stream of it may still wait for its reader."""

    def hear_out(self) -> None:
        """Its worker may tell of its end later than the connection did."""


NOBODY = Nobody()


def too_large(frame: TooLarge, limit_bytes: int) -> ErrorFrame:
    """What the sender of such a frame is told."""
    text = f"a frame of {frame.length} bytes, where {limit_bytes} are taken (max_frame_bytes)"
    data = {"length_bytes": frame.length, "limit_bytes": limit_bytes}
    return ErrorFrame(id=frame.id, code="frame_too_large", m=text, data=data)
