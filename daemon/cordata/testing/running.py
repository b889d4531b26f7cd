"""Coroutine tests without a plugin."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def async_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test to its end, on a fresh loop of the kind that a worker has.

    pytest's fixtures are passed on. Not needed beside pytest-asyncio or anyio.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from cordata.wiring.loop import uvloop_runner

        with uvloop_runner() as runner:
            runner.run(test(*args, **kwargs))

    return run
