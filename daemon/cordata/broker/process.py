"""The processes that claim messages: a row and a lease each, and for those of this host its pid.

A process renews its lease by the store's clock. One that has expired, or whose pid is gone on this
host, is dead: whoever deletes its row takes back what it held (see services/recovery.py). A process
that was taken for dead and is not finds its claims gone: each has a number, and settling with a
number that is no longer the row's changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from cordata.store import Row, Store, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One row of `process`."""

    #: `worker-0@host.1f3c...`: plain_name() gives people the first part.
    id: str
    host: str
    #: Boot and pid namespace: where the pid means something.
    boot: str
    pid: int
    start: int
    expires_at: int = 0

    def is_gone(self) -> bool:
        """Whether it is known dead; False for one of another host, or when in doubt."""
        return self.is_here() and start_of(self.pid) != self.start

    def is_here(self) -> bool:
        """Whether its pid means something in this process."""
        return self.host == socket.gethostname() and self.boot == boot_id()

    @classmethod
    def from_row(cls, row: Row) -> Process:
        """As stored."""
        return cls(
            id=row["id"],
            host=row["host"],
            boot=row["boot"],
            pid=row["pid"],
            start=row["start"],
            expires_at=row["expires_at"],
        )


def this_process(name: str) -> Process:
    """The one that runs; `name` is for people ("worker-0")."""
    host = socket.gethostname()
    return Process(
        id=f"{name}@{host}.{os.urandom(6).hex()}",
        host=host,
        boot=boot_id(),
        pid=os.getpid(),
        start=start_of(os.getpid()),
    )


def plain_name(process_id: str | None) -> str:
    """A process as people know it, such as worker-0@host."""
    name, dot, _ = (process_id or "").rpartition(".")
    return name if dot and "@" in name else process_id or ""


def boot_id() -> str:
    """Names this boot of this host, and the namespace in which its process ids are valid."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = 0
    with contextlib.suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{boot}/{namespace}"


def start_of(pid: int) -> int:
    """When a process started, in ticks since the boot; 0: there is none, or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # its name may be any bytes
    except OSError:
        return 0
    state, *rest = stat.rpartition(")")[2].split()  # proc_pid_stat(5): from the third field on
    return 0 if state in "ZX" else int(rest[18])


async def join(store: Store, process: Process, *, lease_s: float) -> None:
    """Write the row, or extend its lease."""

    async def unit(tx: Tx) -> None:
        expires_at = tx.now_us + int(lease_s * 1e6)
        if not await tx.execute("process.renew", id=process.id, expires_at=expires_at):
            await tx.write(
                "process.join",
                id=process.id,
                host=process.host,
                boot=process.boot,
                pid=process.pid,
                start=process.start,
                expires_at=expires_at,
            )

    await store.run(unit)


async def leave(store: Store, process: Process) -> None:
    """Delete the row of a process that holds no message."""
    await store.run(lambda tx: tx.execute("process.leave", id=process.id))


async def all_processes(store: Store) -> list[Process]:
    """Every row."""
    rows = await store.read(lambda tx: tx.fetch_all("process.all"))
    return [Process.from_row(row) for row in rows]
