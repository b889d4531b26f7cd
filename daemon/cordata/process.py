"""The processes that hold claims on messages, partitions or runs of jobs, and their process leases.

Each has a row, its process lease, which it renews by the store's clock. It is dead when that has
expired, or when its pid is gone on this host: the process that deletes its row reclaims its claims
(see services/process_lease.py). If it was not dead after all, it has lost them: each claim has a
number, and settling with an old number changes nothing.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from cordata.pid import boot_id, is_gone, start_of
from cordata.store import Row, Store, Tx

#: Notified when a process joins, leaves, dies or changes its subscriptions.
PROCESS_TOPIC = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One row of `process`."""

    #: `worker-0@host.1f3c...`; plain_name() returns the first part, for people.
    id: str
    host: str
    #: Boot and pid namespace in which the pid is valid.
    boot: str
    pid: int
    #: Start time of the pid, in clock ticks since boot.
    start: int
    #: End of the lease, in microseconds since the epoch.
    expires_at: int = 0
    #: Names of the event-store subscriptions that it serves.
    subscriptions: frozenset[str] = frozenset()

    def is_gone(self) -> bool:
        """Whether it has certainly ended; False on another host, or when in doubt."""
        return self.is_here() and is_gone(self.pid, self.start)

    def is_here(self) -> bool:
        """Whether its pid is valid here: same host, boot and pid namespace."""
        return self.host == socket.gethostname() and self.boot == boot_id()

    @classmethod
    def from_row(cls, row: Row) -> Process:
        """The process of a row of `process.all`."""
        return cls(
            id=row["id"],
            host=row["host"],
            boot=row["boot"],
            pid=row["pid"],
            start=row["start"],
            expires_at=row["expires_at"],
            subscriptions=frozenset(json.loads(row["subscriptions"])),
        )


def this_process(name: str) -> Process:
    """A new Process for the calling process; `name` is for people ("worker-0")."""
    host = socket.gethostname()
    return Process(
        id=f"{name}@{host}.{os.urandom(6).hex()}",
        host=host,
        boot=boot_id(),
        pid=os.getpid(),
        start=start_of(),
    )


def plain_name(process_id: str | None) -> str:
    """The part of a process id for people, such as worker-0@host."""
    name, dot, _ = (process_id or "").rpartition(".")
    return name if dot and "@" in name else process_id or ""


class ProcessLease:
    """The row of this process, and its lease of `lease_s` seconds."""

    def __init__(self, store: Store, process: Process, *, lease_s: float) -> None:
        self.process = process
        self.lease_s = lease_s
        self._store = store
        self._subscriptions: list[str] = []
        self._expires_at = 0

    def is_held(self) -> bool:
        """Whether the lease has not expired: no other process can have reclaimed the claims."""
        return self._store.now_us() < self._expires_at

    async def renew(self) -> None:
        """Insert the row, or extend its lease."""
        await self._write(is_news=not self.is_held())

    async def serve(self, subscriptions: Iterable[str]) -> None:
        """Store which subscriptions this process serves: these, and no others."""
        self._subscriptions = sorted(subscriptions)
        await self._write(is_news=True)

    async def _write(self, *, is_news: bool) -> None:
        one = self.process

        async def unit(tx: Tx) -> int:
            expires_at = tx.now_us + int(self.lease_s * 1e6)
            row = {"subscriptions": json.dumps(self._subscriptions), "expires_at": expires_at}
            is_there = await tx.execute("process.renew", id=one.id, **row)
            if not is_there:
                where = {"host": one.host, "boot": one.boot, "pid": one.pid, "start": one.start}
                await tx.write("process.join", id=one.id, **where, **row)
            if is_news or not is_there:
                tx.notify(PROCESS_TOPIC)
            return expires_at

        self._expires_at = await self._store.run(unit)

    async def leave(self) -> None:
        """Delete the row: this process has no claims any more."""

        async def unit(tx: Tx) -> None:
            await tx.execute("process.leave", id=self.process.id)
            tx.notify(PROCESS_TOPIC)

        await self._store.run(unit)


async def all_processes(store: Store) -> list[Process]:
    """All processes with a row, expired ones too."""
    rows = await store.read(lambda tx: tx.fetch_all("process.all"))
    return [Process.from_row(row) for row in rows]
