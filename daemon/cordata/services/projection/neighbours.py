"""The other processes of this host that serve subscriptions: noticed at once when one dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection

from cordata import clock
from cordata.broker import Owner, Owners, pid_of
from cordata.log import logger
from cordata.services.projection.deaths import Deaths

log = logger("cordata.engine")

#: The file of a dead process stays for so long, so that every neighbour has seen what it ran; and
#: its marks, so that its partitions have been claimed, even if the store is away for a while.
_FORGET_S = 600.0


class Neighbours:
    """Watches them (pidfd: no polling); call `look` now and then, and `close` at the end."""

    def __init__(
        self, owner: Owner, owners: Owners, ring: Callable[[], None], *, blind_s: float
    ) -> None:
        """`ring()` is called when one dies. `blind_s`: after our own file was missing, the files
        of others tell nothing for so long, until each of them had time to put his back.
        """
        self.deaths = Deaths()
        self._owner = owner
        self._owners = owners
        self._ring = ring
        self._blind_s = blind_s
        self._blind_deadline = 0.0
        self._watched: dict[str, int] = {}
        #: When each was found dead, and what it ran.
        self._dead: dict[str, tuple[float, frozenset[bytes]]] = {}

    def look(self, others: Collection[str]) -> list[str]:
        """Who of `others` is dead, as far as can be known here."""
        now = clock.monotonic()
        if self._owner.restore():
            log.warning("the runtime directory was emptied while in use; it is made anew")
            self._blind_deadline = now + self._blind_s
        ids = set(self._owners.ids()) - {self._owner.id}
        for owner_id in ids - self._dead.keys():
            if not self._owners.is_alive(owner_id):
                running = self._owners.running(owner_id)
                self._dead[owner_id] = now, running
                self.deaths.add(running)
        for owner_id in [one for one, (at, _) in self._dead.items() if now - at > _FORGET_S]:
            self._owners.forget(owner_id)
            self.deaths.drop(self._dead.pop(owner_id)[1])
        self._watch(ids - self._dead.keys())
        return [] if now < self._blind_deadline else self._owners.dead(others)

    def close(self) -> None:
        """Watch nobody any more."""
        for owner_id in list(self._watched):
            self._unwatch(owner_id)

    def _watch(self, living: Collection[str]) -> None:
        for owner_id in self._watched.keys() - set(living):
            self._unwatch(owner_id)
        for owner_id in set(living) - self._watched.keys():
            try:
                pidfd = os.pidfd_open(pid_of(owner_id))
            except OSError:  # gone already (the next look sees it), or not ours to see
                continue
            self._watched[owner_id] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._ended, owner_id)

    def _ended(self, owner_id: str) -> None:
        self._unwatch(owner_id)
        self._ring()

    def _unwatch(self, owner_id: str) -> None:
        pidfd = self._watched.pop(owner_id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
