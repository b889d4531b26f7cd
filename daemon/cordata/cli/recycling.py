"""Wait until another process has the place of a worker's child."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from cordata.cli.view import printable
from cordata.errors import PoolUnavailable

if TYPE_CHECKING:
    from cordata.pool import SyncClient

_LOOK_S = 0.1
#: The order may have died with a connection; one who has it already takes no notice.
_AGAIN_S = 5.0
#: A worker that dials again, or starts again, is back before.
_AWAY_S = 30.0


def recycle_and_wait(client: SyncClient, worker: str) -> dict[str, Any]:
    """Have the child replaced, and wait for that; gives the pids of both.

    Meanwhile stderr hears why no child starts. Raises: PoolError; what it raises once it waits
    says nothing of the replacement, which goes on.
    """
    former = client.recycle(worker)["child"]
    asked = seen = time.monotonic()
    said = ""
    while True:
        time.sleep(_LOOK_S)
        now, found = time.monotonic(), _look(client, worker)
        if found is None:
            if now >= seen + _AWAY_S:
                raise PoolUnavailable(f"worker {worker!r} is not connected any more")
            continue
        seen = now
        child, why = found["child"], found["start_error"] or ""
        if child not in (None, former) and _is_warm(found, child):
            return {"worker": worker, "former": former, "child": child}
        if child == former and now >= asked + _AGAIN_S:
            asked = now
            client.recycle(worker)
        if why and why != said:
            said = why
            text = f"still waiting: no other child of worker {worker} starts: {why}"
            click.echo(printable(text), err=True)


def _look(client: SyncClient, worker: str) -> dict[str, Any] | None:
    """What the manager knows of it; None: it is not connected."""
    for one in client.status()["workers"]:
        if one["worker"] == worker and one["connected"]:
            return dict(one)
    return None


def _is_warm(worker: dict[str, Any], pid: int) -> bool:
    states = {child["pid"]: child["state"] for child in worker["children"]}
    return states.get(pid) in ("ready", "busy")
