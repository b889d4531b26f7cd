"""Fencing: a primary writes under its term of the lease; a write of an older term is refused."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from cordata.errors import LeaseLost
from cordata.store.tx import Tx, Unit

T = TypeVar("T")


class Fence(Struct, frozen=True):
    """One term of the primary; it protects writes while it is the newest."""

    term: int


def is_accepted(term: int, newest: int | None) -> bool:
    """Whether a write under this term is accepted: only while it is the newest term."""
    return term == newest


def require_newest(fence: Fence, newest: int | None) -> None:
    """Raises: LeaseLost unless the fence's term is the newest one in the database."""
    if not is_accepted(fence.term, newest):
        raise LeaseLost(f"term {fence.term} of the primary is over")


async def check_fence(tx: Tx, fence: Fence) -> None:
    """Raises: LeaseLost when the term is not the newest one. For a read."""
    row = await tx.fetch_one("lease.term")
    require_newest(fence, None if row is None else row["term"])


async def lock_fence(tx: Tx, fence: Fence) -> None:
    """As `check_fence`, for a unit that writes: a takeover waits for the end of its transaction."""
    row = await tx.fetch_one("lease.lock")
    require_newest(fence, None if row is None else row["term"])


def with_fence(unit: Unit[T], fence: Fence) -> Unit[T]:
    """A unit that first checks the fence."""

    async def checked(tx: Tx) -> T:
        await lock_fence(tx, fence)
        return await unit(tx)

    return checked


async def take_term(tx: Tx, *, holder: str) -> Fence:
    """Begin a new term; this process has the lock of the lease. `holder` is a text for people."""
    row = await tx.fetch_one("lease.take", holder=holder, acquired_at=tx.now_us)
    assert row is not None
    return Fence(row["term"])


async def end_term(tx: Tx, fence: Fence) -> None:
    """Store that the holder gave the lease back."""
    await tx.execute("lease.release", term=fence.term, released_at=tx.now_us)
