"""State directories whose store is each of the two: `parts.opened` finds in them which one."""

from __future__ import annotations

from pathlib import Path

import pytest

STORES = ("postgres", "sqlite")
_FILE = "store.url"


@pytest.fixture(params=STORES)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state directory for one test, once with each store."""
    return prepared(request.param, request, tmp_path)


def prepared(kind: str, request: pytest.FixtureRequest, path: Path) -> Path:
    """A directory for the store of a kind; that of PostgreSQL has a fresh database."""
    if kind == "postgres":
        use(path, request.getfixturevalue("database"))
    return path


def use(path: Path, url: str) -> None:
    """From now on the store of a state directory is the one at `url`."""
    (path / _FILE).write_text(url)


def url_of(path: Path) -> str:
    """The `[store] url` of a state directory."""
    file = path / _FILE
    return file.read_text() if file.exists() else "sqlite:"
