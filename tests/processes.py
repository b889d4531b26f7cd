"""Rows of processes that are made up: alive until their lease expires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cordata.process import ProcessLease, this_process
from cordata.store import Store


async def joined(
    store: Store, name: str, subscriptions: Iterable[str] = (), *, lease_s: float = 60.0
) -> ProcessLease:
    """The lease of a process that is called `name`, and serves these subscriptions."""
    lease = ProcessLease(store, replace(this_process(name), id=name), lease_s=lease_s)
    await lease.serve(subscriptions)
    return lease
