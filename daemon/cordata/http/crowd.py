"""Connection eviction: closes connections when a worker is at `max_connections` and others wait.

Clients that open connections and send nothing, or little, or do not read what they asked for, could
else keep everybody out for as long as the deadlines are, and again. A client that is quick is out
of danger: its request is here within the first second, and then the server owes it an answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from cordata.http.ending import Ending
from cordata.log import logger

log = logger("cordata.http")

#: Of all connections, those that go at once at most: so looking at all of them is rarely due.
_SHARE = 20
_TOLD_EVERY_S = 60.0


class Crowd:
    """Of one server. Times are the loop's."""

    def __init__(self) -> None:
        self._told_at = -_TOLD_EVERY_S

    def thin(self, connections: Collection[Ending], now: float) -> None:
        """End those with whom the least is lost, of them those who keep us waiting for longest."""
        found = ((one.keeps_waiting(now), one) for one in connections)
        waiting = [(key, one) for key, one in found if key is not None]
        if not waiting:
            return
        count = max(1, len(connections) // _SHARE)
        for _, one in heapq.nlargest(count, waiting, key=lambda pair: pair[0]):
            one.give_way()
        if now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            log.warning(
                "connection limit reached (%d): closing those that send nothing, or do not read",
                len(connections),
            )
