"""The consumer groups of one worker: what they have room for, and what they have in hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from cordata.broker import Message, Want
from cordata.broker.stray import Mark
from cordata.config.sections import EngineConfig
from cordata.registry import Handler
from cordata.services.calling import say_stubborn
from cordata.services.places import Places


class Groups:
    """By name."""

    def __init__(self, handlers: Sequence[Handler], config: EngineConfig) -> None:
        self._places = {s.group: Places(s, config) for s in handlers}

    def __iter__(self) -> Iterator[Places]:
        return iter(self._places.values())

    def __getitem__(self, name: str) -> Places:
        return self._places[name]

    @property
    def names(self) -> list[str]:
        """All of them."""
        return list(self._places)

    @property
    def held(self) -> int:
        """Runs in hand."""
        return sum(group.held for group in self)

    @property
    def expecting(self) -> bool:
        """Whether room is kept for what the relay may bring."""
        return any(group.live.coming for group in self)

    @property
    def more(self) -> bool:
        """Whether something is due for which there is or was no room."""
        return any(group.live.more or group.backfill.more for group in self)

    def wanted(self) -> dict[str, Want]:
        """What to claim; empty while there is no room at all."""
        wanted = {name: group.want() for name, group in self._places.items()}
        return wanted if any(want.live or want.backfill for want in wanted.values()) else {}

    def say_stubborn(self) -> None:
        """Name the groups whose handlers go on though they were cut off."""
        for name, group in self._places.items():
            if group.live.running or group.backfill.running:
                say_stubborn(name, "it was cut off")

    def still_wanted(self, wanted: Mapping[str, Want]) -> dict[str, Want]:
        """The same after a claim, of those groups."""
        return {name: self._places[name].want() for name in wanted}

    def expect(self) -> dict[str, int]:
        """What the relay may bring: where no order is kept and nothing was left behind.

        There is room for it, whatever is claimed meanwhile, until something is brought.
        """
        room = {}
        for name, group in self._places.items():
            if not (group.closed or group.handler.key or group.live.more):
                if count := group.live.wanted():
                    room[name] = group.live.coming = count
        return room

    def receive(self, messages: Sequence[Message]) -> list[Message]:
        """What the relay has brought, and no more will come; those of closed groups return."""
        for group in self:
            group.live.coming = 0
        return self.put(messages)

    def put(self, messages: Sequence[Message]) -> list[Message]:
        """Take in what was claimed, those of one group together; those of closed groups return."""
        late: list[Message] = []
        for name, found in groupby(messages, key=attrgetter("group")):
            group = self._places[name]
            if group.closed:
                late += found
            else:
                group.put(list(found))
        return late

    def known(self) -> set[Mark]:
        """All in hand."""
        return {(m.group, m.id) for group in self for m in group.messages()}

    def is_free(self) -> bool:
        """Whether a pass should not wait: more is due, or only the backfill has had passes."""
        return any(group.live.more for group in self) or (
            any(group.backfill.held for group in self)
            and not any(group.live.held for group in self)
        )
