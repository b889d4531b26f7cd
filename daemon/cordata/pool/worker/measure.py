"""What a child itself weighs: not its worker, and not what both share with others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cordata.config.pool import PoolConfig
from cordata.core.pool.recycle import due

if TYPE_CHECKING:
    from cordata.pool.worker.process import ChildProcess

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int) -> int:
    """Resident memory, by the second field of proc_pid_statm(5); 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def outgrown(child: ChildProcess, config: PoolConfig, worker: str, now: float) -> str | None:
    """Why the child is to be replaced; None: it may go on."""
    return due(
        max_calls=config.max_calls,
        max_age_s=config.max_age_s,
        max_rss_bytes=config.max_rss_bytes,
        worker=worker,
        calls=child.hand().done,
        age_s=now - child.started_at,
        rss_bytes=child.rss_bytes() if config.max_rss_bytes else 0,
    )
