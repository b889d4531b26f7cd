"""Refusal log: what Redis refuses is logged at once, with the next step, and then now and then."""

from __future__ import annotations

from redis.exceptions import ResponseError

from cordata import clock, events
from cordata.broker.redis.server import code_of, describe
from cordata.log import LogThrottle, fields, logger

log = logger("cordata.redis")

_EVERY_S = 300.0
#: A key of another type is where a stream should be.
WRONG_TYPE = "WRONGTYPE"
_HINTS = {
    WRONG_TYPE: "something else uses this key: rename or delete it (TYPE shows what it is), or"
    " choose another [broker] prefix",
    "NOPERM": "the user in [broker] url needs the commands and the keys of [broker] prefix",
}
#: A running primary examines a new Redis within this time.
_PRIMARY_S = 30.0


class RefusalLog:
    """The refusals that one process logs."""

    def __init__(self) -> None:
        self._throttle = LogThrottle(again_s=_EVERY_S)

    def refused(self, what: str, error: ResponseError) -> None:
        """Redis refuses a command about a key, or a purpose."""
        self.error(f"Redis refuses {what}: {describe(error)}", hint=_HINTS.get(code_of(error), ""))

    def error(self, text: str, *, hint: str = "") -> None:
        """Log an error with the next step, unless the same was logged not long ago."""
        if self._throttle.is_due(text):
            extra = fields(events.BROKER_FAILED, hint=hint)
            log.error("%s%s", text, f" ({hint})" if hint else "", extra=extra)


class UnknownServer:
    """Notices when the Redis of this process stays unknown to the primary."""

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals
        self._run_ids: tuple[str, str] | None = None
        self._deadline = 0.0

    def seen(self, known: str, ours: str) -> None:
        """The run ids of the Redis that the store knows, and of ours; they differ."""
        now = clock.monotonic()
        if self._run_ids != (known, ours):
            self._run_ids = known, ours
            self._deadline = now + _PRIMARY_S
        elif now >= self._deadline:
            self._refusals.error(
                "no primary looks after this Redis, so nothing is published to it",
                hint="[broker] url and prefix have to be the same on every host, the primary's too:"
                " compare what `cordata config show` says there; and one primary has to run",
            )

    def known(self) -> None:
        """They are the same."""
        self._run_ids = None
