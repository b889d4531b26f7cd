"""What commands look at: a primary and a worker, as the service manager starts them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.cli.command import cordata
from tests.integration.cli.mended import MENDED
from tests.integration.server.managed import forked

T = TypeVar("T")


@contextmanager
def running(config: Path) -> Iterator[None]:
    """The primary and a worker, ready; they end in order."""
    with ExitStack() as stack:
        mended = str(config.parent / "mended")
        roles = [
            stack.enter_context(forked(config, *role, **{MENDED: mended}))
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
    return poll(lambda: told(config, *arguments), true)


def poll(look: Callable[[], T], true: Callable[[T], object]) -> T:
    """What a look finds once something is true of it; each look is a program's whole start."""
    deadline, pause_s = time.monotonic() + 60, 0.1
    while not true(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)
    return found
