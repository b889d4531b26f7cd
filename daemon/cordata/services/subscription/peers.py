"""The neighbours that serve subscriptions: who of them has died, and in which handlers."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cordata import clock
from cordata.broker import Owner, Owners
from cordata.services.neighbours import Neighbours
from cordata.services.subscription.deaths import Deaths

#: The file of a dead process stays for so long, so that every neighbour has seen what it ran; and
#: its marks, so that its partitions have been claimed, even if the store is away for a while.
_FORGET_S = 600.0


class Peers:
    """Call `look` now and then, and `close` at the end."""

    def __init__(
        self, owner: Owner, owners: Owners, ring: Callable[[], None], *, blind_s: float
    ) -> None:
        """As Neighbours."""
        self.deaths = Deaths()
        self._owner = owner
        self._owners = owners
        self._neighbours = Neighbours(owner, owners, ring, blind_s=blind_s)
        #: When each was found dead, and what it ran.
        self._dead: dict[str, tuple[float, frozenset[bytes]]] = {}

    def look(self, others: Collection[str]) -> list[str]:
        """Who of `others` is dead, as far as can be known here."""
        now, files_tell = clock.monotonic(), self._neighbours.look()
        ids = set(self._owners.ids()) - {self._owner.id}
        for owner_id in self._owners.dead(ids - self._dead.keys()):
            running = self._owners.running(owner_id)
            self._dead[owner_id] = now, running
            self.deaths.add(running)
        for owner_id in [one for one, (at, _) in self._dead.items() if now - at > _FORGET_S]:
            self._owners.forget(owner_id)
            self.deaths.drop(self._dead.pop(owner_id)[1])
        return self._owners.dead(others) if files_tell else []

    def close(self) -> None:
        """Watch nobody any more."""
        self._neighbours.close()
