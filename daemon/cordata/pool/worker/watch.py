"""What one child owes its worker, by the clock: to warm up, to end its call, to answer, to leave.

```
  started --up--> idle --ping, no pong--> "unhealthy"
     |             |  ^-- call ends
     '--> "init"   '--> busy, past deadline + grace --> "deadline"
     any --stop sent--> leaving, idle and still there --> "stop"
```
"""

from __future__ import annotations

from cordata.config.pool import PoolConfig
from cordata.core.pool.page import Hand

#: `look` says it when a ping is due; everything else is a reason to kill the child.
PING = "ping"


class Watch:
    """Pure: the page and the time come in, a word goes out. "": all is well."""

    def __init__(self, now: float) -> None:
        self._started = now
        self.up = False
        self._up_at = now
        #: When it had no call in hand first, so that it could have answered.
        self._idle_since = now
        #: When it was heard of last.
        self._heard = now
        self._pinged: float | None = None
        self._left: float | None = None

    def say_up(self, now: float) -> None:
        """It is warm."""
        self.up = True
        self._up_at = now
        self._heard = self._idle_since = now

    def warm_s(self, now: float) -> float:
        """For how long it has been up."""
        return now - self._up_at if self.up else 0.0

    def say_pong(self, now: float) -> None:
        """It answered."""
        self._heard, self._pinged = now, None

    def say_stop(self, now: float) -> None:
        """It was told to leave."""
        if self._left is None:
            self._left = now

    def look(self, hand: Hand, now: float, config: PoolConfig) -> str:
        """PING, which is then taken as sent; the reason to kill it; or ""."""
        if hand.busy:
            self._idle_since = now
            late = hand.deadline and now >= hand.deadline + config.kill_grace_s
            return "deadline" if late else ""
        patience_s = config.health_timeout_s
        if self._left is not None:
            return "stop" if now >= max(self._left, self._idle_since) + patience_s else ""
        if not self.up:
            return "init" if now >= self._started + config.init_timeout_s else ""
        if self._pinged is not None:
            return "unhealthy" if now >= max(self._pinged, self._idle_since) + patience_s else ""
        if now >= self._heard + config.health_s:
            self._pinged = now
            return PING
        return ""
