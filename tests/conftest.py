"""Runs `async def` tests on the event loop that the service uses."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Coroutine, Iterator
from datetime import datetime
from time import sleep
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings
from tests.examples import examples
from tests.integration.engine.template import template_of
from tests.servers.fixtures import database, postgres, redis, redis_url, servers
from tests.servers.postgres import PostgresServer

from cordata.wiring.event_loop import uvloop_runner

__all__ = ["database", "postgres", "redis", "redis_url", "servers"]

#: What a service manager (or a container's) may have put into our environment.
_MANAGERS = ("NOTIFY_", "WATCHDOG_", "LISTEN_", "MONITOR_", "CORDATA_", "JOURNAL_STREAM")
_DIRECTORIES = ("STATE_DIRECTORY", "CREDENTIALS_DIRECTORY")


#: The same examples in each run, however long one takes on a busy machine.
settings.register_profile(
    "cordata", deadline=None, derandomize=True, database=None, max_examples=examples(100)
)
settings.load_profile("cordata")


# A shell ignores SIGINT for what it starts in the background, and children inherit that; but tests
# end commands as Ctrl-C does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nobodys_service() -> None:
    """Tests, and the processes they start, are managed by nobody but the test."""
    for name in list(os.environ):
        if name.startswith((*_MANAGERS, *_DIRECTORIES)) and name != "CORDATA_CACHE":
            del os.environ[name]


@pytest.fixture
def runtime_database(postgres: PostgresServer) -> Iterator[str]:
    """As `database`, with the runtime's tables."""
    with postgres.database(template=template_of(postgres, ())) as url:
        yield url


@pytest.fixture
def one_day() -> None:
    """A test of less than a minute ends on the day on which it begins, in Rome and by UTC."""
    for zone in ("Europe/Rome", "UTC"):
        now = datetime.now(ZoneInfo(zone))
        left_s = 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
        if left_s <= 60:
            sleep(left_s)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A coroutine test runs to its end on a fresh uvloop; a task that goes on after it fails it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with uvloop_runner() as runner:
        runner.run(_whole(pyfuncitem.obj(**arguments)))
    return True


async def _whole(test: Coroutine[Any, Any, None]) -> None:
    await test
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        _, left = await asyncio.wait(left, timeout=5)  # what is ending may need a few turns
    assert not left, f"tasks left behind: {left}"
