"""Schema: the migrations of the program against those of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cordata import events, log
from cordata.store import migrate
from cordata.store.exclusive import Exclusive
from cordata.store.fence import Fence
from cordata.store.migrate import Applied, Chain, Migration
from cordata.store.reader import Reader

_log = log.logger("cordata.store")


class Schema:
    """What is pending, and applying it."""

    def __init__(self, reader: Reader, exclusive: Exclusive) -> None:
        self._reader = reader
        self._exclusive = exclusive
        self._known: dict[tuple[Chain, ...], list[Migration]] = {}
        self._newer: list[Applied] = []

    async def bootstrap(self) -> None:
        """Make the tables that the lease and the migrations themselves need."""
        if await self._reader.read(migrate.has_bootstrap) is None:
            await self._exclusive.call(migrate.bootstrap)

    async def pending(self, chains: Sequence[Chain]) -> list[Migration]:
        """What is to be applied. Raises: SchemaError."""
        key = tuple(chains)
        if key not in self._known:
            self._known[key] = migrate.load(key, "sqlite")
        applied = await self._reader.read(migrate.read_applied)
        todo, newer = migrate.pending(self._known[key], applied)
        if newer and newer != self._newer:
            self._newer = newer
            _log.warning("the schema is newer than this program: %s", ", ".join(map(str, newer)))
        return todo

    async def migrate(
        self,
        chains: Sequence[Chain],
        fence: Fence | None,
        progress: Callable[[str], None] | None,
    ) -> list[Applied]:
        """Apply what is pending, each in a transaction of its own."""
        await self.bootstrap()
        done: list[Applied] = []
        for migration in await self.pending(chains):
            if progress is not None:
                progress(f"applying {migration}")
            call = partial(migrate.apply_one, migration=migration, fence=fence)
            if not await self._exclusive.call(call):
                continue
            done.append(Applied(migration.component, migration.number, migration.name))
            _log.info("applied %s", migration, extra=log.fields(events.MIGRATION_APPLIED))
        return done
