"""Values that all sessions share. A child is told what changed since it last heard of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Raw

from cordata.core.pool.message import Values
from cordata.core.pool.order import GlobalsCopy
from cordata.core.pool.record import GlobalsChanged
from cordata.core.pool.shelf import size_of
from cordata.errors import SessionQuotaExceeded

#: Deleted keys that are remembered, so that children can be told; who is older gets everything.
_REMEMBERED = 1000


#: Version of a child's globals when it may have kept changes that were not taken: it gets them all.
UNSURE = -2


class Globals:
    """The table. `changes` is for the journal, which empties it."""

    __slots__ = ("_floor", "_gone", "_limit", "_order", "bytes", "changes", "data", "version")

    def __init__(self, max_bytes: int) -> None:
        self._limit = max_bytes
        self.data: Values = {}
        self.bytes = 0
        self.version = 0
        self.changes: list[GlobalsChanged] = []
        #: Version at which each key changed last, the latest at the end; deleted ones, too.
        self._order: OrderedDict[str, int] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        #: Who knows an older version gets everything.
        self._floor = 0

    def change(self, set: Mapping[str, Raw], delete: Sequence[str] = ()) -> int:
        """Change them by key; the new version. Raises: SessionQuotaExceeded, nothing changed."""
        after = self.bytes
        for key in {*delete, *set}:
            after -= size_of(key, self.data[key]) if key in self.data else 0
        after += sum(size_of(key, value) for key, value in set.items())
        if after > self._limit and after > self.bytes:
            raise SessionQuotaExceeded(
                f"the globals would have {after} bytes, {self._limit} are allowed"
            )
        if not set and not any(key in self.data for key in delete):
            return self.version
        self._apply(set, delete, self.version + 1)
        changed = {key: self.data[key] for key in set}
        self.changes.append(GlobalsChanged(self.version, changed, list(delete)))
        return self.version

    def load(self, change: GlobalsChanged) -> None:
        """One record of the file."""
        if change.full:
            self._apply({}, [key for key in self.data if key not in change.set], change.v)
        self._apply(change.set, change.delete, change.v)
        # No child knows anything of the run before.
        self._floor = self.version

    def whole(self) -> GlobalsChanged:
        """The record that makes them anew."""
        return GlobalsChanged(self.version, dict(self.data), full=True)

    def since(self, version: int) -> GlobalsCopy | None:
        """What a child that knows `version` (-1: nothing) has to be told; None: it has them."""
        if version == self.version or (version < 0 and not self.data):
            return None
        if version < self._floor:
            return GlobalsCopy(v=self.version, set=dict(self.data), full=True)
        copy = GlobalsCopy(v=self.version)
        for key, changed in reversed(self._order.items()):
            if changed <= version:
                break
            if key in self.data:
                copy.set[key] = self.data[key]
            else:
                copy.delete.append(key)
        return copy

    def _apply(self, set: Mapping[str, Raw], delete: Sequence[str], version: int) -> None:
        self.version = version
        for key in delete:
            value = self.data.pop(key, None)
            if value is not None:
                self.bytes -= size_of(key, value)
                self._gone[key] = None
                self._at(key, version)
        for key, value in set.items():
            former = self.data.get(key)
            self.bytes += size_of(key, value) - (0 if former is None else size_of(key, former))
            self.data[key] = value.copy()
            self._gone.pop(key, None)
            self._at(key, version)
        while len(self._gone) > _REMEMBERED:
            key, _ = self._gone.popitem(last=False)
            self._floor = max(self._floor, self._order.pop(key))

    def _at(self, key: str, version: int) -> None:
        self._order[key] = version
        self._order.move_to_end(key)
