"""Fence: the term under which a primary writes, and the rows of the terms."""

from __future__ import annotations

from dataclasses import dataclass

from cordata.errors import LeaseLost
from cordata.store.tx import Tx


@dataclass(frozen=True, slots=True)
class Fence:
    """The term of a lease; a write with an older term than the newest is refused."""

    name: str
    term: int


def is_accepted(term: int, newest: int | None) -> bool:
    """Whether a write under this term is accepted: only while no newer one was taken."""
    return term == newest


def require_newest(fence: Fence, newest: int | None) -> None:
    """Raises: LeaseLost unless the fence's term is the newest one in the database."""
    if not is_accepted(fence.term, newest):
        raise LeaseLost(f"term {fence.term} of the lease {fence.name!r} is over")


async def check_fence(tx: Tx, fence: Fence, *, lock_term: bool = False) -> None:
    """Raises: LeaseLost when the term is not the newest one.

    `lock_term`: from now to its end a takeover waits for this transaction, where there is no single
    writer that would order the two.
    """
    row = await tx.fetch_one("lease.hold" if lock_term else "lease.term", name=fence.name)
    require_newest(fence, None if row is None else row["term"])


async def take_term(tx: Tx, name: str, *, holder: str) -> Fence:
    """Begin a new term of a lease, whose lock this process has; `holder` is for people."""
    row = await tx.fetch_one("lease.take", name=name, holder=holder, acquired_at=tx.now_us)
    assert row is not None
    return Fence(name, row["term"])


async def end_term(tx: Tx, fence: Fence) -> None:
    """Write down that the holder gave the lease back."""
    await tx.execute("lease.release", name=fence.name, term=fence.term, released_at=tx.now_us)
