"""Why nobody took a call that waited. It is found when the call is refused, not before."""

from __future__ import annotations

from collections.abc import Iterable

from cordata.core.pool.limits import PoolLimits
from cordata.core.pool.registry import Registry, Slot
from cordata.core.pool.state import BUSY, READY, UNHEALTHY

#: Workers that a reason names at most.
_NAMED = 10


def why_nobody(registry: Registry, pool: PoolLimits, worker: str = "", command: str = "") -> str:
    """What keeps the children of the pool from its calls; "": they are busy, some of them.
    `worker`: of a call that may run at this one only. `command`: of calls of this one.
    """
    if worker:
        return _why_not(registry, pool, worker)
    drained: list[Slot] = []
    cold: list[Slot] = []
    lacking: list[Slot] = []
    for slot in registry.by_worker.values():
        if slot.pool != pool.name or not _is_connected(slot):
            continue
        if command and not registry.knows(slot.worker, command):
            lacking.append(slot)
        elif slot.draining:
            drained.append(slot)
        elif _is_warm(slot):
            return ""
        else:
            cold.append(slot)
    if cold:
        return _why_cold(cold, f"pool {pool.name}")
    if drained:
        return f"all workers of pool {pool.name} are drained: {_names(s.worker for s in drained)}"
    if lacking:
        names = _names(slot.worker for slot in lacking)
        return f"no worker of pool {pool.name} that is connected knows {command!r}: {names}"
    own = f" (its workers: {_names(pool.workers)})" if pool.workers else ""
    return f"no worker of pool {pool.name} is connected{own}"


def _why_not(registry: Registry, pool: PoolLimits, worker: str) -> str:
    slot = registry.by_worker.get(worker)
    if slot is None or not _is_connected(slot):
        slots = registry.by_worker.values()
        found = _names(s.worker for s in slots if s.pool == pool.name and _is_connected(s))
        return f"worker {worker} is not connected (there are: {found or 'none'})"
    if slot.draining:
        return f"worker {worker} is drained"
    if _is_warm(slot):
        return ""
    return f"worker {worker} has no warm child" + (slot.start_error and f": {slot.start_error}")


def _why_cold(slots: Iterable[Slot], whose: str) -> str:
    """They have no warm child: the reason of the first one that gave any."""
    for slot in slots:
        if slot.start_error:
            return f"no child of {whose} starts; that of worker {slot.worker}: {slot.start_error}"
    return f"no child of {whose} is warm"


def _is_connected(slot: Slot) -> bool:
    """A child may come back before its worker does, and takes calls."""
    return slot.conn is not None or (slot.child is not None and slot.child.conn is not None)


def _is_warm(slot: Slot) -> bool:
    return slot.child is not None and slot.child.state in (READY, BUSY, UNHEALTHY)


def _names(workers: Iterable[str]) -> str:
    """In order, 2 before 10; of many the first ones."""
    found = sorted(workers, key=lambda name: (len(name), name))
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")
