"""How long commands run, so that only short ones are sent to a child ahead of their turn."""

from __future__ import annotations

#: The weight of the newest run in the average.
_WEIGHT = 0.125


class Pace:
    """The smoothed time of each command that ever answered, as its child measured it."""

    __slots__ = ("_us",)

    def __init__(self) -> None:
        self._us: dict[str, float] = {}

    def ran(self, command: str, us: int) -> None:
        """A run took so long; 0: its child did not say."""
        if us > 0:
            former = self._us.get(command, us)
            self._us[command] = former + _WEIGHT * (us - former)

    def expected_us(self, command: str) -> float:
        """How long the next run is likely to take; for ever, when nothing is known of it."""
        return self._us.get(command, NEVER)


NEVER = 1e12
