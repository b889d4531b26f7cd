"""Schema: the migrations of the program against those of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cordata import events, log
from cordata.store import migrate
from cordata.store.fence import Fence
from cordata.store.migrate import Applied, Chain, Migration
from cordata.store.tx import Unit

_log = log.logger("cordata.store")


class Schema:
    """What is pending, and applying it."""

    def __init__(
        self,
        dialect: str,
        read: Callable[[Unit[Any]], Awaitable[Any]],
        bootstrap: Callable[[], Awaitable[None]],
        apply_one: Callable[[Migration, Fence | None], Awaitable[bool]],
    ) -> None:
        """`apply_one` applies one migration whole; False: another process was faster."""
        self._dialect = dialect
        self._read = read
        self._bootstrap = bootstrap
        self._apply_one = apply_one
        self._known: dict[tuple[Chain, ...], list[Migration]] = {}
        self._newer: list[Applied] = []

    async def bootstrap(self) -> None:
        """Make the tables that the lease and the migrations themselves need."""
        if await self._read(migrate.has_bootstrap) is None:
            await self._bootstrap()

    async def pending(self, chains: Sequence[Chain]) -> list[Migration]:
        """What is to be applied. Raises: SchemaError."""
        key = tuple(chains)
        if key not in self._known:
            self._known[key] = migrate.load(key, self._dialect)
        applied = await self._read(migrate.read_applied)
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
            if not await self._apply_one(migration, fence):
                continue
            done.append(Applied(migration.component, migration.number, migration.name))
            _log.info("applied %s", migration, extra=log.fields(events.MIGRATION_APPLIED))
        return done
