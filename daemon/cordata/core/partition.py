"""Partitions of a subscription: who should have how many, and which are read together.

    free ──claim, term + 1──> owned ──event ended, position stored──> free
                                │
                                ├──handled──> position moves on, attempts 0
                                ├──failed──> attempts + 1; again after a pause, nothing overtakes
                                ├──retries used up──> blocked, until an operator resumes it
                                │                     (or a dead letter, and the position moves on)
                                └──owner dead or not renewed──claimed by another, term + 1

Whatever moves a position names owner and term, so who was robbed of a partition moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b


def fair_share(me: str, held: Mapping[str, int], partitions: int, *, salt: str) -> int:
    """How many of `partitions` the process `me` should have.

    `held`: every living process that takes part, `me` too -> how many it has now. What is left
    over goes to those who have most, so that nothing moves without need; `salt` (the name of the
    subscription) decides between equals, so that not all left-overs go to the same process.
    """
    share, left_over = divmod(partitions, len(held))

    def rank(owner: str) -> tuple[int, bytes]:
        return -held[owner], blake2b(f"{salt}/{owner}".encode(), digest_size=8).digest()

    return share + (sorted(held, key=rank).index(me) < left_over)


def cohorts(read_to: Mapping[int, int], safe: int) -> list[tuple[int, int, Sequence[int]]]:
    """Which partitions are read by one query: (after, until, partitions), the foremost first.

    `read_to`: partition -> the position up to which it was read. Those at the same position are
    one cohort. A cohort that is behind is read no further than to where the next one is, so that
    they go on as one from there.
    """
    by_position: dict[int, list[int]] = {}
    for partition, position in read_to.items():
        by_position.setdefault(position, []).append(partition)
    found: list[tuple[int, int, Sequence[int]]] = []
    until = safe
    for position in sorted(by_position, reverse=True):
        if position < until:
            found.append((position, until, sorted(by_position[position])))
        until = min(until, position)
    return found
