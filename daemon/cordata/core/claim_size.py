"""How many messages a worker claims, and how many of a low priority it handles, at once."""

from __future__ import annotations

#: A worker claims for each group as many messages as it handles within this time.
_CLAIM_S = 0.25


def prefetch_count(mean_s: float, *, concurrency: int, batch: int) -> int:
    """Runs of a group that one worker should hold: as many as it handles within _CLAIM_S. A run is
    one message, or several of one key.

    A worker with fast handlers gets whole batches; one with slow handlers leaves the rest to other
    workers. `mean_s` is the mean duration of a run, 0 before the first.
    """
    if mean_s <= 0.0:
        return min(concurrency, batch)
    return max(min(int(concurrency * _CLAIM_S / mean_s), batch), min(concurrency, batch))


def mean_duration_s(mean_s: float, duration_s: float) -> float:
    """The moving mean after a further duration; the very first duration is the mean."""
    return duration_s if mean_s <= 0.0 else 0.9 * mean_s + 0.1 * duration_s


def low_priority_slots(concurrency: int) -> int:
    """Slots of a group that messages with a priority below 0 may take at once."""
    return max(1, concurrency // 4)


def run_length(mean_s: float, *, batch: int) -> int:
    """Messages of one key that a worker should claim together: as many as it handles within
    _CLAIM_S.

    Messages of one key are handled one after the other, so another worker could not handle them
    sooner. `mean_s` is the mean duration of one message, 0 before the first.
    """
    if mean_s <= 0.0:
        return 1
    return max(1, min(int(_CLAIM_S / mean_s), batch))
