"""How long commands run, so that only short ones are sent to a child ahead of their turn.

Two figures of each command: the smoothed mean, and what nine of ten runs stay below. On a busy
machine a run of 20 microseconds takes 4 milliseconds now and then, since its process had to wait:
that moves the mean of a short command by more than its own length, and says nothing of it. A
command that has become slow moves the mean at once, and from LONG_US on the mean is what counts.
"""

from __future__ import annotations

#: The weight of the newest run in the mean.
_WEIGHT = 0.125
#: Steps of the other figure: nine down balance one up.
_UP, _DOWN = 1.09, 1 / 1.09 ** (1 / 9)
#: A command whose mean is longer is expected to take that.
LONG_US = 500.0
NEVER = 1e12


class Pace:
    """By command that ever answered, its figures, as its children measured."""

    __slots__ = ("_expected", "_figures")

    def __init__(self) -> None:
        #: The mean, and what most stay below.
        self._figures: dict[str, tuple[float, float]] = {}
        #: What follows from them, which is asked for more often than it changes.
        self._expected: dict[str, float] = {}

    def ran(self, command: str, us: int) -> None:
        """A run took so long; 0: its child did not say."""
        if us > 0:
            mean, most = self._figures.get(command, (us, us))
            if us > most:
                most *= _UP
            elif us < most and most > 1.0:
                most *= _DOWN
            mean += _WEIGHT * (us - mean)
            self._figures[command] = (mean, most)
            self._expected[command] = mean if mean > LONG_US or mean < most else most

    def forget(self, command: str) -> None:
        """As if it had never run."""
        self._figures.pop(command, None)
        self._expected.pop(command, None)

    def expected_us(self, command: str) -> float:
        """How long the next run is likely to take; for ever, when nothing is known of it."""
        return self._expected.get(command, NEVER)
