"""What an operator has to mend: said at once, and then now and then while it lasts."""

from __future__ import annotations

from cordata import clock, events
from cordata.broker.redis.connection import Refused
from cordata.log import fields, logger
from cordata.log_throttle import LogThrottle

log = logger("cordata.redis")

_EVERY_S = 300.0
#: A key of another type stands where a stream should be.
WRONG_TYPE = "WRONGTYPE"
_HINTS = {
    WRONG_TYPE: "something else uses this key: rename or delete it (TYPE shows what it is), or"
    " choose another [broker] prefix",
    "NOPERM": "the user in [broker] url needs the commands and the keys of [broker] prefix",
    "NOAUTH": "is the credential redis-password there and right?",
}


#: The primary looks through a new Redis within this time, or never will.
_PATIENCE_S = 30.0


class Complaints:
    """Of one process."""

    def __init__(self) -> None:
        self._throttle = LogThrottle(again_s=_EVERY_S)

    def refused(self, key: str, error: Refused) -> None:
        """Redis refuses what was asked of a key."""
        self.say(f"Redis refuses {key}: {error}", hint=_HINTS.get(error.kind, ""))

    def say(self, text: str, *, hint: str = "") -> None:
        """Log an error with the next step, unless it was not long ago."""
        if self._throttle.is_due(text):
            extra = fields(events.BROKER_FAILED, hint=hint)
            log.error("%s%s", text, f" ({hint})" if hint else "", extra=extra)


class Strangers:
    """Notices when the Redis of this process is not the one that the primary looks after."""

    def __init__(self, complaints: Complaints, *, patience_s: float = _PATIENCE_S) -> None:
        self._complaints = complaints
        self._patience_s = patience_s
        self._pair: tuple[str, str] | None = None
        self._deadline = 0.0

    def met(self, known: str, ours: str) -> None:
        """Run ids: of the Redis that the store knows, and of ours."""
        now = clock.monotonic()
        if self._pair != (known, ours):
            self._pair = known, ours
            self._deadline = now + self._patience_s
        elif now >= self._deadline:
            self._complaints.say(
                "no primary looks after this Redis, so nothing is published to it",
                hint="[broker] url and prefix have to be the same on every host, the primary's too:"
                " compare what `cordata config show` says there; and one primary has to run",
            )

    def made_known(self) -> None:
        """They are the same."""
        self._pair = None
