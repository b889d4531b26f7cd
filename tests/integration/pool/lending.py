"""What tests of loans share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.integration.pool.test_together import Together
from tests.servers.process import wait_until

from cordata.pool import Client, SyncClient

#: More than it takes to be lent children.
MANY = 200


async def warmed(
    client: Client, command: str = "echo", payload: Any = 1, *, session: str = ""
) -> None:
    """So many short calls, one after the other, that the client has children on loan."""
    for _ in range(MANY):
        await client.execute(command, payload, session=session)


async def lent(all_: Together, client: Client, count: int) -> int:
    """The same until so many children are on loan: a busy machine may make short calls long.

    How many calls that took.
    """
    for times in range(1, 21):
        await warmed(client)
        found = (await asyncio.to_thread(all_.manager.status))["loans"]
        if found["now"] == count:
            return times * MANY
    raise AssertionError(found)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60.0))


def heard_of(file: Path) -> None:
    wait_until(file.exists, timeout_s=10.0, what="the command to hear that it was cancelled")


def returned(all_: Together) -> dict[str, int]:
    """What the manager says of loans after somebody else has called."""
    with SyncClient(all_.manager.path) as other:
        other.execute("echo", 1)
    found: dict[str, Any] = all_.manager.until(
        lambda status: not status["loans"]["now"] and status, "the loans end"
    )
    return dict(found["loans"])
