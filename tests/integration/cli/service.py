"""What commands look at: a primary and a worker, as the service manager starts them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.integration.cli.command import cordata
from tests.integration.cli.mended import MENDED
from tests.integration.server.managed import managed


@contextmanager
def running(config: Path) -> Iterator[None]:
    """The primary and a worker, ready; they end in order."""
    with ExitStack() as stack:
        mended = str(config.parent / "mended")
        roles = [
            stack.enter_context(managed(config, *role, **{MENDED: mended}))
            for role in (("primary",), ("worker", "0"))
        ]
        for role in roles:
            role.until_ready()
        yield
        for role in reversed(roles):
            assert role.stop()[0] == 0


def told(config: Path, *arguments: str) -> Any:
    """What a command prints with --json."""
    result = cordata(*arguments, "--json", "--config", str(config))
    assert result.returncode == 0, result
    return json.loads(result.stdout)


def until(config: Path, *arguments: str, true: Callable[[Any], bool]) -> Any:
    """What a command prints once something is true of it."""
    deadline = time.monotonic() + 60
    while not true(found := told(config, *arguments)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)  # each look is a program's whole start
    return found
