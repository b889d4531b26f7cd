"""Real parts for the engine's tests: a store with the runtime's tables and one of the tests'."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from tests.integration.engine.stores import url_of
from tests.queries import queries_of
from tests.waiting import until_async

from cordata.app import App
from cordata.broker.group import Group, catch_up, register
from cordata.config.sections import StoreConfig
from cordata.context import Context
from cordata.store import Chain, Row, RuntimeStore, Store, Tx, dialect_of, open_store
from cordata.vault import Vault

SQL = "tests.integration.engine.sql"
EFFECT = Chain("effect", SQL)
CHAINS = (EFFECT,)
#: Far more than a busy machine takes, and less than a lease lasts (60 s): what happens at the end
#: of a lease only is not there by then.
WAIT_S = 45.0


@asynccontextmanager
async def opened(
    state: Path, *, migrate: bool = True, chain: Chain = EFFECT
) -> AsyncIterator[RuntimeStore]:
    """The store of one process: the one that `stores` chose for `state`, or the embedded one.

    `chain`: of the tests' own tables and statements.
    """
    config = StoreConfig(url=url_of(state))
    store = await open_store(
        config,
        state_dir=state,
        runtime_dir=runtime_of(state),
        queries=queries_of(dialect_of(config), chain.package),
    )
    async with store:
        if migrate:
            await store.migrate((chain,))
        yield store


def runtime_of(state: Path) -> Path:
    """The runtime directory that goes with a state directory."""
    path = state / "run"
    path.mkdir(exist_ok=True)
    return path


def context_of(store: Store) -> Context:
    """A Context without secrets."""
    return Context(store=store, vault=Vault(None), settings={})


async def publish(
    store: Store, count: int, *, type_: str = "thing.done", **more: object
) -> list[str]:
    """Commit `count` events of one type. Returns their ids."""

    async def unit(tx: Tx) -> list[str]:
        return [
            await tx.publish(type_, {"n": n}, **more)  # type: ignore[arg-type]
            for n in range(count)
        ]

    return await store.run(unit)


async def registered(
    store: Store,
    groups: Mapping[str, str],
    *,
    keyed: Collection[str] = (),
    broker: Literal["store", "redis"] = "store",
) -> None:
    """Make groups known (group -> event type), as the first worker with them does."""
    declared = [Group(name, type_, name in keyed, broker) for name, type_ in groups.items()]
    await catch_up(store, await register(store, declared))


async def known(store: Store, app: App) -> None:
    """Make an application's groups known before its first worker starts, as the primary does."""
    groups = {one.group: one.type for one in app.handlers}
    await registered(store, groups, keyed={one.group for one in app.handlers if one.key})


async def rows(store: Store, query: str) -> list[Row]:
    """All rows of a named query."""

    async def unit(tx: Tx) -> list[Row]:
        return await tx.fetch_all(query)

    return await store.read(unit)


async def until(look: Callable[[], bool | Awaitable[bool]], *, timeout_s: float = WAIT_S) -> None:
    """As `until_async`, for less time than a lease lasts. Raises: TimeoutError."""
    await until_async(look, timeout_s)
