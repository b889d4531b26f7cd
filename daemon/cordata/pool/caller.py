"""The other side of a call while it runs: a connection of the child, or a stand-in of tests."""

from __future__ import annotations

from typing import Protocol


class Caller(Protocol):
    """The connection that a call came from, while it runs."""

    #: Number of the client process.
    client: int
    #: Chunks that may be sent.
    credits: int

    def look(self) -> bool:
        """See what came, without waiting. Whether the caller waits for the result no more."""

    def take_credit(self) -> bool:
        """Wait until one more chunk may be sent; False: nobody wants it."""

    def send_chunk(self, data: bytes) -> None:
        """Raises: CallCancelled when it is not taken."""

    def fileno(self) -> int:
        """Of its socket; -1: it is closed."""
