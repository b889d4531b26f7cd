"""Wait until another process has the place of a worker's child."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from cordata.cli.view import printable

if TYPE_CHECKING:
    from cordata.pool import SyncClient

_LOOK_S = 0.1


def recycle(client: SyncClient, worker: str, *, wait: bool) -> dict[str, Any]:
    """Have the child replaced; gives the answer, with the pids if that was waited for.

    Meanwhile stderr hears why no child starts. Raises: PoolError; what it raises once it waits
    says nothing of the replacement, which goes on.
    """
    if not wait:
        return dict(client.recycle(worker))
    former, _ = _look(client, worker)
    answer = dict(client.recycle(worker))
    said = ""
    while True:
        pid, why = _look(client, worker)
        if pid not in (None, former):
            return {**answer, "former": former, "pid": pid}
        if why and why != said:
            said = why
            click.echo(
                printable(f"still waiting: no child of worker {worker} starts: {why}"), err=True
            )
        time.sleep(_LOOK_S)


def _look(client: SyncClient, worker: str) -> tuple[int | None, str]:
    """The pid of the child that takes its calls, if one does; why another one does not start."""
    for one in client.status()["workers"]:
        if one["worker"] == worker:
            warm = [child for child in one["children"] if child["state"] in ("ready", "busy")]
            pids = [child["pid"] for child in warm if not child["spare"]]
            return (pids[0] if pids else None), one["start_error"] or ""
    return None, ""
