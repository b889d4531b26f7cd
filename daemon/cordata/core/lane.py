"""How the places of one consumer group in one worker are shared by its two lanes, and by keys."""

from __future__ import annotations


def backfill_places(concurrency: int) -> int:
    """How many of a group's places its backfill may take at once.

    Never all of them: a live event finds one that is free, and most of them even if the backfill's
    handlers are slow. A group with a single place has a second one for its backfill.
    """
    return max(1, concurrency // 4)


def all_places(concurrency: int) -> int:
    """Handlers of a group that may run at once, both lanes together."""
    return max(concurrency, 1 + backfill_places(concurrency))


def run_length(mean_s: float, *, batch: int, horizon_s: float = 0.25) -> int:
    """Messages of one key that a worker should claim together: what it handles within `horizon_s`.

    They are handled one after the other, so no other worker is kept from them meanwhile. `mean_s`
    is the mean duration of one handler, 0 before the first.
    """
    if mean_s <= 0.0:
        return 1
    return max(1, min(int(horizon_s / mean_s), batch))
