"""Session and globals for a command: mappings that record its changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from msgspec import Raw, msgpack

from cordata.pool.shared.protocol import check_names


class TrackedMapping(MutableMapping[str, Any]):
    """Values by name, decoded once for each call that reads them.

    A value is encoded when it is assigned: to change a list that was read, assign it again.
    """

    __slots__ = ("_before", "_decoded", "deleted", "set")

    def __init__(self, before: Mapping[str, Raw]) -> None:
        self._before = before
        self._decoded: dict[str, Any] = {}
        #: What this call assigned, and what it deleted.
        self.set: dict[str, Raw] = {}
        self.deleted: dict[str, None] = {}

    def __getitem__(self, key: str) -> Any:
        if key in self._decoded:
            return self._decoded[key]
        raw = self.set.get(key)
        if raw is None:
            if key in self.deleted:
                raise KeyError(key)
            raw = self._before[key]
        value = self._decoded[key] = msgpack.decode(raw)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        """Raises: TypeError when MessagePack has no such value, ValueError for a key that is too
        long.
        """
        check_names((key,))
        self.set[key] = Raw(msgpack.encode(value))
        self.deleted.pop(key, None)
        self._decoded.pop(key, None)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.set.pop(key, None)
        self._decoded.pop(key, None)
        if key in self._before:
            self.deleted[key] = None

    def __contains__(self, key: object) -> bool:
        return key in self.set or (key in self._before and key not in self.deleted)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._before if key not in self.deleted)
        yield from (key for key in self.set if key not in self._before)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Session(TrackedMapping):
    """The session of a call. Its changes are stored if the call succeeds, and dropped if it fails;
    of two calls that change one key at the same time, the later one wins.
    """

    __slots__ = ("_counters", "affinity", "counted", "id", "worker")

    def __init__(
        self,
        id: str,
        worker: str,
        affinity: str,
        data: Mapping[str, Raw],
        counters: Mapping[str, int],
    ) -> None:
        super().__init__(data)
        self.id = id
        #: Its preferred worker; "": any.
        self.worker = worker
        #: What its calls do when that worker is not free; "": it does not run this command.
        self.affinity = affinity
        self._counters = counters
        #: What this call counted.
        self.counted: dict[str, int] = {}

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters by name, with what this call counted."""
        return {
            name: self._counters.get(name, 0) + self.counted.get(name, 0)
            for name in {**self._counters, **self.counted}
        }

    def count(self, **by: int) -> None:
        """Add to counters: `session.count(seen=1)`. Calls at the same time add up."""
        check_names(tuple(by))
        for name, number in by.items():
            if not isinstance(number, int):
                raise TypeError(f"a counter takes an int, not {type(number).__name__}")
            if number:
                self.counted[name] = self.counted.get(name, 0) + number
