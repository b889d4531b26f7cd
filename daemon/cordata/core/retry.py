"""When to try again: exponential back-off with full jitter: what failed together spreads out."""

from __future__ import annotations

#: Doubling stops here: 2**32 times any first pause is beyond every `longest_s`.
_MAX_DOUBLINGS = 32


def next_delay_s(attempt: int, rng: float, *, first_s: float, longest_s: float) -> float:
    """Seconds to wait after the `attempt`-th failure (1 is the first).

    `rng` is a number in [0, 1) that the caller drew: the pause is that share of
    min(longest_s, first_s * 2**(attempt - 1)), which is "full jitter" of
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
    """
    doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
    return rng * min(longest_s, first_s * 2.0**doublings)
