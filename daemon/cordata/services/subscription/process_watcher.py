"""The other processes of this host: noticed at once when one dies, as far as their files tell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from cordata import clock
from cordata.broker import Owner, Owners, pid_of
from cordata.log import logger

log = logger("cordata.engine")


class ProcessWatcher:
    """Watches them (pidfd: no polling); call `look` now and then, and `close` at the end."""

    def __init__(
        self, owner: Owner, owners: Owners, on_death: Callable[[], None], *, grace_s: float
    ) -> None:
        """`on_death()` is called when one dies. `grace_s`: after our own file was missing, a
        missing file tells nothing for so long: the others need time to put theirs back.
        """
        self._owner = owner
        self._owners = owners
        self._on_death = on_death
        self._grace_s = grace_s
        self._grace_deadline = 0.0
        self._watched: dict[str, int] = {}
        #: Those whose death was reported, until somebody has removed their files.
        self._ended: set[str] = set()

    def look(self) -> bool:
        """Watch whoever is new. Returns whether a missing file means that its process left.

        Raises: OSError, when this process has no descriptor left.
        """
        known = set(self._owners.ids()) - {self._owner.id}
        self._ended &= known
        for owner_id in self._watched.keys() - known:
            self._unwatch(owner_id)
        for owner_id in known - self._watched.keys() - self._ended:
            self._watch(owner_id)
        now = clock.monotonic()
        if self._owner.restore():
            log.warning("the runtime directory was emptied while in use; it is made anew")
            self._grace_deadline = now + self._grace_s
        return now >= self._grace_deadline

    def close(self) -> None:
        """Watch nobody any more."""
        for owner_id in list(self._watched):
            self._unwatch(owner_id)

    def _watch(self, owner_id: str) -> None:
        try:
            pidfd = os.pidfd_open(pid_of(owner_id))
        except OSError:  # gone already, which its file tells; or not ours to see
            return
        self._watched[owner_id] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._died, owner_id)

    def _died(self, owner_id: str) -> None:
        self._unwatch(owner_id)
        self._ended.add(owner_id)
        self._on_death()

    def _unwatch(self, owner_id: str) -> None:
        pidfd = self._watched.pop(owner_id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
