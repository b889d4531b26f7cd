"""After Redis lost data, or may have: see keeper.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cordata.broker.redis.connection import Command, Connection, Refused
from cordata.broker.redis.naming import Keys, Stream, id_of, position_of
from cordata.broker.redis.registry import Knowledge, as_dict
from cordata.broker.settle import STREAM_TOPIC
from cordata.store import OUTBOX_TOPIC, Row, Store, Tx

#: Outbox entries of one look.
_PAGE = 500
#: Which of the ids are in the stream.
_PRESENT = """
local found = {}
for n, id in ipairs(ARGV) do found[n] = #redis.call('XRANGE', KEYS[1], id, id) end
return found
"""


class Recovery:
    """One, on one connection. Doing it twice, or half and then anew, is fine."""

    def __init__(
        self,
        store: Store,
        connection: Connection,
        keys: Keys,
        known: Knowledge,
        *,
        progress: Callable[[], None],
        timeout_s: float,
    ) -> None:
        """`progress`: called after every step; a step is bounded, and there may be many."""
        self._progress = progress
        self._store = store
        self._connection = connection
        self._keys = keys
        self._known = known
        self._timeout_s = timeout_s

    async def run(self, *, epoch: str, since: int) -> int:
        """Make groups, ids and events whole; then this is the Redis that the store knows.

        Published before `since` (wall time in microseconds) is let be. Returns how many messages
        were published again. Raises: BrokerUnavailable, Refused, StoreUnavailable, LeaseLost.
        """
        await self._set_server("", "")  # relays mark nothing meanwhile: see Publisher
        await self._make_groups()
        self._progress()
        floors = await self._raise_ids()
        self._progress()
        count = await self._publish_again(since)
        await self._connection.run(("SET", self._keys.epoch, epoch), timeout_s=self._timeout_s)

        await self._set_server(self._connection.run_id, epoch, floors)
        return count

    async def _set_server(
        self, run_id: str, epoch: str, floors: Mapping[Stream, int] = MappingProxyType({})
    ) -> None:
        async def unit(tx: Tx) -> None:
            await tx.write("redis.set_server", run_id=run_id, epoch=epoch, now_us=tx.now_us)
            for stream, floor in sorted(floors.items()):
                row = {**stream._asdict(), "position": floor, "floor": floor}
                await tx.write("redis.save_stream", **row)
            if run_id:
                tx.notify(OUTBOX_TOPIC)  # relays may go on
                tx.notify(STREAM_TOPIC)

        await self._store.run(unit)

    async def _make_groups(self) -> None:
        commands: list[Command] = [
            ("XGROUP", "CREATE", self._keys.of(m.stream), m.group, id_of(position), "MKSTREAM")
            for m, position in self._known.marks.items()
        ]
        for reply in await self._call(commands):
            if isinstance(reply, Refused) and reply.kind != "BUSYGROUP":
                raise reply

    async def _raise_ids(self) -> dict[Stream, int]:
        """New entries get ids behind all that were ever given, whatever the server's clock says.

        Returns for each stream up to where its entries may have been handled before.
        """
        streams = list({mark.stream for mark in self._known.marks})
        looks: list[Command] = [("XINFO", "STREAM", self._keys.of(one)) for one in streams]
        top = await self._highest()
        last: dict[Stream, int] = {}
        for stream, reply in zip(streams, await self._call(looks), strict=True):
            if isinstance(reply, Refused):
                raise reply
            last[stream] = position_of(as_dict(reply)[b"last-generated-id"])
        lower = [stream for stream, position in last.items() if position < top]
        for reply in await self._call([("XSETID", self._keys.of(s), id_of(top)) for s in lower]):
            if isinstance(reply, Refused):
                raise reply
        return last

    async def _highest(self) -> int:
        async def unit(tx: Tx) -> int:
            row = await tx.fetch_one("redis.top")
            return row["position"] or 0 if row is not None else 0

        positions = [*self._known.positions.values(), *self._known.marks.values()]
        return max([await self._store.read(unit), *positions])

    async def _publish_again(self, since: int) -> int:
        """Page by page through what was published and may not be done."""
        count = 0
        at = (min(self._known.marks.values(), default=0), 0)
        while True:
            page, undone = await self._page(at, since)
            self._progress()
            lost = await self._lost(undone)
            self._progress()
            if lost:
                count += await self._keep(lost)
                self._progress()
            if len(page) < _PAGE:
                return count
            at = (page[-1]["position"], page[-1]["id"])

    async def _page(self, at: tuple[int, int], since: int) -> tuple[list[Row], list[Row]]:
        async def unit(tx: Tx) -> tuple[list[Row], list[Row]]:
            page = await tx.fetch_all("redis.page", position=at[0], id=at[1], limit=_PAGE)
            ids = json.dumps([row["id"] for row in page])
            return page, await tx.fetch_all("redis.undone", ids=ids, since=since) if page else []

        return await self._store.read(unit)

    async def _lost(self, undone: Sequence[Row]) -> list[Row]:
        """Those that are not in their stream any more."""
        by_stream: dict[Stream, dict[int, list[Row]]] = {}
        for row in undone:
            of_stream = by_stream.setdefault(Stream(row["type"], row["level"]), {})
            of_stream.setdefault(row["position"], []).append(row)
        lost: list[Row] = []
        for stream, positions in by_stream.items():
            present = await self._present(stream, list(positions))
            lost += [row for at, rows in positions.items() if not present[at] for row in rows]
        return lost

    async def _present(self, stream: Stream, positions: Sequence[int]) -> Mapping[int, bool]:
        ids = map(id_of, positions)
        (found,) = await self._connection.run(
            ("EVAL", _PRESENT, 1, self._keys.of(stream), *ids), timeout_s=self._timeout_s
        )
        return dict(zip(positions, map(bool, found), strict=True))

    async def _keep(self, lost: Sequence[Row]) -> int:
        async def unit(tx: Tx) -> int:
            rows = [
                [row["id"], row["event_id"], row["group"], "ready", 0, tx.now_us, "", 0, 0]
                for row in lost
            ]
            return await tx.execute("redis.keep", messages=json.dumps(sorted(rows)))

        return await self._store.run(unit)

    async def _call(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        return await self._connection.call(*commands, timeout_s=self._timeout_s)
