"""open_app: from an App and a moment to a Harness."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from cordata import clock as wall
from cordata.app import App
from cordata.broker import Owner
from cordata.config import Config, Document, build, find_file, open_document
from cordata.config.sections import PathsConfig
from cordata.opening import open_context
from cordata.store import Store
from cordata.testing.harness import Harness
from cordata.testing.pool import InlineDoor, InlinePool
from cordata.testing.timed import Clock, TimedStore
from cordata.vault import Vault

#: Every test's, so that sealed secrets may stand in a test's own data.
MASTER_KEY = bytes(range(32)).hex().encode()


@asynccontextmanager
async def open_app(
    app: App,
    *,
    now: datetime | None = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    directory: Path | None = None,
    startup: bool = True,
) -> AsyncIterator[Harness]:
    """The application in the state in which a worker begins to serve: migrated, started up.

    `now`: the time, aware; by default that of the call. `config`: sections of cordata.toml as
    `{"shop": {"desk": "a@example.com"}}`, a file, or a loaded one; its directories are not used,
    nor is the environment. `directory`: where the store lies, for example pytest's `tmp_path`; by
    default one that is deleted at the end. `startup=False` leaves the `@app.startup` functions to
    `run_startup()`. Secrets are sealed with a master key of the tests' own.

    Raises: ConfigError; what a startup function raises.
    """
    clock = Clock(now or wall.now())
    async with AsyncExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cordata-")))
        directory.mkdir(parents=True, exist_ok=True)
        loaded = dataclasses.replace(_loaded(app, config), paths=_paths(directory))
        opened = await stack.enter_async_context(
            open_context(loaded, _with_queries(app), vault=Vault(MASTER_KEY))
        )
        store = cast(Store, TimedStore(opened.store, clock))
        door = InlineDoor(lambda: InlinePool(app, loaded, lambda: clock.now_us() / 1e6))
        stack.push_async_callback(door.close)
        ctx = dataclasses.replace(opened, store=store, door=door)
        await store.migrate(ctx.chains)
        owner = Owner.register(loaded.paths.runtime, name="test")
        stack.callback(owner.close)
        harness = Harness(app, ctx, loaded, clock, owner)
        await stack.enter_async_context(harness.opened())
        if startup:
            await harness.run_startup()
        yield harness


def _loaded(app: App, config: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, str | Path):
        document = open_document(find_file(config))
    else:
        document = Document(path=None, tables=dict(config or {}))
    return build(document, app.settings_classes, {})


def _paths(directory: Path) -> PathsConfig:
    return PathsConfig(
        state=directory, runtime=directory / "run", credentials=directory / "credentials"
    )


def _with_queries(app: App) -> App:
    """The same application, and what a test reads; its own list stays as it is."""
    more = copy.copy(app)
    more.query_packages = [*app.query_packages, "cordata.testing.sql"]
    return more
