"""Records what a handler raises, before the engine settles the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cordata.context import Event
from cordata.errors import AlreadySeen
from cordata.eventstore import StoredEvent
from cordata.unawaited import require_awaits


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt that failed."""

    #: The consumer group, or the subscription to the event store.
    group: str
    event: Event | StoredEvent
    error: BaseException


class FailureRecorder:
    """The last error of one attempt."""

    def __init__(self) -> None:
        self._caught: tuple[Event | StoredEvent, BaseException] | None = None

    def clear(self) -> None:
        """Forget the error; called before each attempt."""
        self._caught = None

    @contextmanager
    def over(self, event: Event | StoredEvent) -> Iterator[None]:
        """Context manager around the call of a handler: records what it raises."""
        try:
            with require_awaits():
                yield
        except AlreadySeen:  # no failure: the effect is committed already
            raise
        except BaseException as error:
            self._caught = (event, error)
            raise

    def failure(self, group: str, timeout_s: float) -> Failure | None:
        """The failure of the attempt, with a note that names it; None if it succeeded."""
        if self._caught is None:
            return None
        event, error = self._caught
        if isinstance(error, asyncio.CancelledError):
            error = TimeoutError(f"{group} took longer than {timeout_s} s")
        name = event.id if isinstance(event, Event) else f"{event.stream}/{event.version}"
        error.add_note(f"in {group}, attempt {event.attempt} at event {name}")
        return Failure(group=group, event=event, error=error)
