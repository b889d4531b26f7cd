"""Circuit breaker: a command that kills children one after the other is refused for a while."""

from __future__ import annotations

from cordata.errors import CommandPoisoned


class CircuitBreaker:
    """Counts deaths in a row by command, in one client process."""

    __slots__ = ("_deaths", "_until", "limit", "pause_s")

    def __init__(self, limit: int, pause_s: float) -> None:
        self.limit, self.pause_s = limit, pause_s
        self._deaths: dict[str, int] = {}
        #: Until when (monotonic) a command is refused; may be in the past.
        self._until: dict[str, float] = {}

    def count_death(self, command: str, now: float) -> bool:
        """Count a death of a child in the command; True: the command is refused from now on."""
        deaths = self._deaths[command] = self._deaths.get(command, 0) + 1
        if deaths < self.limit:
            return False
        fresh = not self.is_open(command, now)
        # After the pause one more death is enough.
        self._deaths[command] = self.limit - 1
        self._until[command] = now + self.pause_s
        return fresh

    def succeeded(self, command: str) -> None:
        """Reset the count: a child ran the command, perhaps with an error, and lived. A pause
        goes on.
        """
        if self._deaths:
            self._deaths.pop(command, None)

    def is_open(self, command: str, now: float) -> bool:
        """Whether the command is refused."""
        return self._until.get(command, now) > now

    def check(self, command: str, now: float) -> None:
        """Raises: CommandPoisoned while the command is refused."""
        if self._until and self.is_open(command, now):
            left_s = self._until[command] - now
            text = (
                f"{command!r} killed {self.limit} processes in a row and is refused for"
                f" {left_s:.0f} s more"
            )
            raise CommandPoisoned(text, retry_after_s=left_s)
