"""Fence: the term under which a primary writes, checked inside its transaction."""

from __future__ import annotations

from dataclasses import dataclass

from cordata.core.lease import is_accepted
from cordata.errors import LeaseLost
from cordata.store.tx import Tx


@dataclass(frozen=True, slots=True)
class Fence:
    """The term of a lease; a write with an older term than the newest is refused."""

    name: str
    term: int


async def check_fence(tx: Tx, fence: Fence, *, hold: bool = False) -> None:
    """Raises: LeaseLost when the term is not the newest one.

    `hold`: from now to its end a takeover waits for this transaction, where there is no single
    writer that would order the two.
    """
    row = await tx.fetch_one("lease.hold" if hold else "lease.term", name=fence.name)
    if not is_accepted(fence.term, None if row is None else row["term"]):
        raise LeaseLost(f"term {fence.term} of the lease {fence.name!r} is over")
