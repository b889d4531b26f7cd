"""State directories whose store is each of the two: `parts.opened` finds in them which one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.engine.template import begin

STORES = ("postgres", "sqlite")
_FILE = "store.url"


@pytest.fixture(params=STORES)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state directory for one test, once with each store, which has the runtime's tables."""
    return prepared(request.param, request, tmp_path)


@pytest.fixture(params=STORES)
def new_state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same with a store that has no table yet."""
    return prepared(request.param, request, tmp_path, new=True)


def prepared(kind: str, request: pytest.FixtureRequest, path: Path, *, new: bool = False) -> Path:
    """A directory for the store of a kind, which has the runtime's tables unless it is `new`."""
    if kind == "postgres":
        use(path, request.getfixturevalue("database" if new else "runtime_database"))
    elif not new:
        asyncio.run(begin(path, "sqlite:", ()))
    return path


def use(path: Path, url: str) -> None:
    """From now on the store of a state directory is the one at `url`."""
    (path / _FILE).write_text(url)


def url_of(path: Path) -> str:
    """The `[store] url` of a state directory."""
    file = path / _FILE
    return file.read_text() if file.exists() else "sqlite:"
