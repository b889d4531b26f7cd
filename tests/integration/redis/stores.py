"""State directories whose broker is Redis or Valkey, beside each of the two stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.engine import stores
from tests.servers.fixtures import Servers
from tests.servers.redis import available

#: Begins the keys of every broker of the tests.
PREFIX = "test"
_FILE = "broker.url"
#: Program of the broker and kind of the store, by the name that a test shows.
_KINDS = {
    f"{program.removesuffix('-server')}-{store}": (program, store)
    for program in available()
    for store in stores.STORES
}
REDIS_KINDS = tuple(_KINDS)


def prepared(kind: str, request: pytest.FixtureRequest, path: Path) -> Path:
    """As `stores.prepared`; for a kind of Redis an empty one is there, too."""
    program, store = _KINDS.get(kind, ("", kind))
    stores.prepared(store, request, path)
    if program:
        servers: Servers = request.getfixturevalue("servers")
        use(path, servers.redis(program).url)
    return path


def use(path: Path, url: str) -> None:
    """From now on the broker of a state directory is the one at `url`."""
    (path / _FILE).write_text(url)


def url_of(path: Path) -> str:
    """The `[broker] url` of a state directory."""
    file = path / _FILE
    return file.read_text() if file.exists() else "store:"
