"""Bounded priority queue of the calls of one pool that wait in a client.

A call's place is its arrival less one second per priority: the highest priority is ahead of at most
nine seconds of others, so that no call starves. Calls wait by command and, where the session binds
them to a worker, by worker: a child takes the first of those that it may run.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush

from cordata.config.pool import PoolConfig
from cordata.errors import PoolSaturated
from cordata.pool.client.call import Call

#: The only worker that may run a call ("": any), and the command.
Kind = tuple[str, str]
_Entry = tuple[float, int, Call]


class CallQueue:
    """The waiting calls of one pool. Only `calls` scans all of them."""

    __slots__ = ("_heaps", "_limits", "bytes", "count")

    def __init__(self, limits: PoolConfig) -> None:
        self._limits = limits
        self._heaps: dict[Kind, list[_Entry]] = {}
        self.count = 0
        self.bytes = 0

    def add(self, call: Call, *, back: bool = False) -> None:
        """Add a call; `back`: it was admitted before, and gets its former place.

        Raises: PoolSaturated at `max_waiting` or `max_waiting_bytes`.
        """
        limits = self._limits
        if not back:
            if self.count >= limits.max_waiting:
                raise PoolSaturated(f"{self.count} calls wait already, the limit (max_waiting)")
            if self.bytes + call.size_bytes > limits.max_waiting_bytes:
                raise PoolSaturated(
                    f"the calls that wait have {self.bytes} bytes, {call.size_bytes} more are too"
                    f" many (max_waiting_bytes)"
                )
        self.count += 1
        self.bytes += call.size_bytes
        heap = self._heaps.setdefault((call.pinned, call.command), [])
        entry = call.entry = (call.enqueued - call.priority, call.sequence, call)
        heappush(heap, entry)

    def take(self, worker: str, commands: Container[str]) -> Call | None:
        """Remove and return the first call that this worker's child may run; None: none."""
        found: Kind | None = None
        first: _Entry | None = None
        for kind in tuple(self._heaps):
            if kind[1] not in commands or kind[0] not in ("", worker):
                continue
            head = self._head(kind)
            if head is not None and (first is None or head < first):
                found, first = kind, head
        if found is None or first is None:
            return None
        heappop(self._heaps[found])
        call = first[2]
        self._leave(call)
        return call

    def drop(self, call: Call) -> None:
        """Remove a call from any position. It must be in this queue."""
        self._leave(call)
        heap = self._heaps.get((call.pinned, call.command), [])
        if len(heap) > 2 * self.count + 64:  # mostly calls that were dropped
            self._heaps[call.pinned, call.command] = sorted(e for e in heap if e is e[2].entry)

    @property
    def kinds(self) -> int:
        """Number of kinds of waiting calls, or more: a kind may have only dropped calls."""
        return len(self._heaps)

    def commands(self) -> set[str]:
        """The commands of the waiting calls."""
        return {kind[1] for kind in list(self._heaps) if self._head(kind) is not None}

    def calls(self) -> list[Call]:
        """All waiting calls, in no order."""
        return [
            entry[2] for heap in self._heaps.values() for entry in heap if entry is entry[2].entry
        ]

    def _leave(self, call: Call) -> None:
        call.entry = None
        self.count -= 1
        self.bytes -= call.size_bytes

    def _head(self, kind: Kind) -> _Entry | None:
        """The first entry that still waits; removes dropped ones before it, and an empty heap."""
        heap = self._heaps[kind]
        while heap and heap[0] is not heap[0][2].entry:
            heappop(heap)
        if not heap:
            del self._heaps[kind]
            return None
        return heap[0]
