"""Exponential backoff with jitter: attempts that fail together are not repeated together."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct

#: Avoids overflow: 2**32 times any first pause is longer than every `longest_s`.
_MAX_DOUBLINGS = 32
#: While the store is unavailable, a message waits as long as after this many failures.
STORE_UNAVAILABLE_ATTEMPT = 3


class Backoff(Struct, frozen=True):
    """How long to wait before the next attempt."""

    first_s: float
    longest_s: float
    #: The shortest pause, as a share of the longest one of that attempt. 0: "full jitter" of
    #: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
    least: float = 0.0
    #: Returns a random number in [0, 1).
    draw: Callable[[], float] = random.random

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after the `attempt`-th failure (1 is the first): a random share of
        min(longest_s, first_s * 2**(attempt - 1)).
        """
        doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
        share = self.least + (1.0 - self.least) * self.draw()
        return share * min(self.longest_s, self.first_s * 2.0**doublings)
