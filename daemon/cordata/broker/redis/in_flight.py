"""The in-flight set of a consumer: what it has read and not settled, or not acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cordata.broker.message import Outcome
from cordata.broker.redis.stream import Delivery
from cordata.core.delivery import Verdict

#: Group and message id.
Key = tuple[str, object]


class InFlight:
    """Of one consumer.

    read ──> held ──handled──> handled ──┐
               │                         ├──acknowledged──> gone
               └─in the store──> moved ──┘
    """

    def __init__(self) -> None:
        #: Read and not settled.
        self._held: dict[Key, Delivery] = {}
        #: To be acknowledged: handled by this process.
        self._handled: dict[Key, Delivery] = {}
        #: To be acknowledged: the store has it, or it was handled before.
        self._moved: dict[Key, Delivery] = {}

    def add(self, delivery: Delivery) -> bool:
        """It was read. Returns False when it is here already."""
        key = _key(delivery)
        if key in self._held or key in self._handled or key in self._moved:
            return False
        self._held[key] = delivery
        return True

    def settle(
        self, outcomes: Iterable[Outcome]
    ) -> tuple[list[tuple[Outcome, Delivery]], list[Outcome]]:
        """What was handled is to be acknowledged. Returns (what was not handled, not held here)."""
        rest: list[tuple[Outcome, Delivery]] = []
        unknown: list[Outcome] = []
        for outcome in outcomes:
            key = outcome.group, outcome.id
            if (delivery := self._held.get(key)) is None:
                unknown.append(outcome)
            elif outcome.verdict is Verdict.DONE:
                self._handled[key] = self._held.pop(key)
            else:
                rest.append((outcome, delivery))
        return rest, unknown

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """They are another process' by now."""
        for delivery in deliveries:
            self._held.pop(_key(delivery), None)

    def move(self, deliveries: Iterable[Delivery]) -> None:
        """They need no handler here any more, only an acknowledgement."""
        for delivery in deliveries:
            key = _key(delivery)
            self._held.pop(key, None)
            self._moved[key] = delivery

    def held(self) -> list[Delivery]:
        """What is not settled."""
        return list(self._held.values())

    def to_acknowledge(self) -> list[Delivery]:
        """What is settled."""
        return [*self._handled.values(), *self._moved.values()]

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to acknowledge."""
        return not self._handled and not self._moved

    def acknowledged(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """An answer came for these. Returns those that were handled here.

        The others may still be due in the store: nobody may mark them as handled.
        """
        found = [self._handled.pop(_key(one), None) for one in deliveries]
        for one in deliveries:
            self._moved.pop(_key(one), None)
        return [one for one in found if one is not None]


def _key(delivery: Delivery) -> Key:
    return delivery.message.group, delivery.message.id
