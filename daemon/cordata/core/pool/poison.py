"""Commands that kill children one after the other are refused for a while."""

from __future__ import annotations


class Poison:
    """Counts deaths in a row by command. Only commands with a recent death are remembered."""

    __slots__ = ("_deaths", "limit", "pause_s", "until")

    def __init__(self, limit: int, pause_s: float) -> None:
        self.limit = limit
        self.pause_s = pause_s
        self._deaths: dict[str, int] = {}
        #: Commands that are refused, and until when; also some that are not any more.
        self.until: dict[str, float] = {}

    def died(self, command: str, now: float) -> bool:
        """A child died by itself in this command; True: the command is refused from now on."""
        deaths = self._deaths[command] = self._deaths.get(command, 0) + 1
        if deaths < self.limit:
            return False
        fresh = self.refused_until(command, now) is None
        # After the pause one more death is enough.
        self._deaths[command] = self.limit - 1
        self.until[command] = now + self.pause_s
        return fresh

    def succeeded(self, command: str) -> None:
        """A child answered, be it with an error: the row is broken. A pause goes on."""
        if self._deaths:
            self._deaths.pop(command, None)

    def refused_until(self, command: str, now: float) -> float | None:
        """When the command is taken again; None: now."""
        until = self.until.get(command)
        if until is None:
            return None
        if until <= now:
            del self.until[command]
            return None
        return until

    def refused(self, now: float) -> dict[str, float]:
        """Seconds that each refused command is still refused."""
        return {name: until - now for name, until in self.until.items() if until > now}
