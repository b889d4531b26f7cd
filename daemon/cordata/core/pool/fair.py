"""A queue in which clients take turns: one with 10,000 calls holds nobody up."""

from __future__ import annotations

from collections import OrderedDict

from cordata.core.pool.call import Call
from cordata.core.pool.queue import Fifo, Key


class Fair:
    """As Fifo, but one call of each client in turn. A client is a process: `call.source`."""

    __slots__ = ("_ring", "bytes", "count")

    def __init__(self) -> None:
        #: Clients with waiting calls; the first one's turn is next.
        self._ring: OrderedDict[int, Fifo] = OrderedDict()
        self.count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self.count

    def push(self, call: Call, *, back: bool = False) -> None:
        """Stand in line behind the client's own calls; `back`: at the place it had among them."""
        own = self._ring.get(call.source)
        if own is None:
            own = self._ring[call.source] = Fifo()
        own.push(call, back=back)
        self.count += 1
        self.bytes += call.size_bytes

    def of(self, source: int) -> Fifo | None:
        """What this client has waiting; None: nothing."""
        return self._ring.get(source)

    def peek_key(self) -> Key | None:
        """The key of who is next."""
        return next(iter(self._ring.values())).peek_key() if self._ring else None

    def peek(self) -> Call | None:
        """Who is next; it stays."""
        return next(iter(self._ring.values())).peek() if self._ring else None

    def pop(self) -> Call | None:
        """Who is next, out of the queue; its client's next turn comes after all others."""
        if not self._ring:
            return None
        source, own = next(iter(self._ring.items()))
        call = own.pop()
        if call is not None:
            self.count -= 1
            self.bytes -= call.size_bytes
        if own:
            self._ring.move_to_end(source)
        else:
            del self._ring[source]
        return call

    def drop(self, call: Call) -> None:
        """Leave the queue. It must be queued here."""
        own = self._ring[call.source]
        own.drop(call)
        self.count -= 1
        self.bytes -= call.size_bytes
        if not own:
            del self._ring[call.source]

    def oldest(self, now: float) -> float:
        """Seconds that the longest waiting one waits; looks at every client with work."""
        return max((own.oldest(now) for own in self._ring.values()), default=0.0)
