"""Who may handle a claimed message, or a claimed outbox entry, when its owner may be gone.

    claimed ──renewed in time──> claimed
       │
       ├──its owner is known dead (this host's files tell)──> at once somebody else's
       └──not renewed for `claim_timeout_s`────────────────> somebody else's

All moments are those of the store's clock, as each process estimates it: hosts' own clocks play no
part. An owner renews at a third of the timeout, so it keeps what it holds even if it misses one
renewal, or if two processes differ about the time by two thirds of the timeout. Who was taken for
dead and is not (cut off, or suspended) may end a handler later: its outcome no longer counts, and
the effect that it commits carries the seen-mark, which exists once.
"""

from __future__ import annotations


def claimed_until(now_us: int, *, timeout_us: int) -> int:
    """Until when a claim that is made or renewed now is respected."""
    return now_us + timeout_us


def renewal_s(timeout_s: float) -> float:
    """How long after its last renewal an owner renews its claims."""
    return timeout_s / 3


def is_expired(until_us: int, now_us: int) -> bool:
    """Whether a claim has expired."""
    return until_us < now_us


def may_take_over(*, expired: bool, known_dead: bool) -> bool:
    """Whether what an owner holds may be taken from it."""
    return expired or known_dead
