"""Commands that leave evidence: each run appends its order's id to a file, in one write."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

#: Names the file of evidence.
EVIDENCE = "CHAOS_EVIDENCE"


def mark(payload: Any, session: Any) -> Any:
    """Run once more; gives the payload back."""
    _begun(payload)
    time.sleep(payload["sleep_s"])
    _kept(payload, session)
    return payload


async def mark_async(payload: Any, session: Any) -> Any:
    """The same, on the child's loop."""
    _begun(payload)
    await asyncio.sleep(payload["sleep_s"])
    _kept(payload, session)
    return payload


def pages(payload: Any, session: Any) -> Iterator[Any]:
    """So many parts, numbered."""
    _begun(payload)
    for number in range(payload["parts"]):
        time.sleep(payload["sleep_s"] / payload["parts"])
        yield [payload["id"], number]
    _kept(payload, session)


def hang(payload: Any, session: Any) -> None:
    """Longer than anybody waits."""
    _begun(payload)
    _kept(payload, session)
    time.sleep(60.0)


def fail(payload: Any, session: Any) -> None:
    """What it changed is lost."""
    _begun(payload)
    _kept(payload, session)
    raise ValueError(payload["id"])


def _begun(payload: Any) -> None:
    file = os.open(os.environ[EVIDENCE], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{payload['id']}\n".encode())
    finally:
        os.close(file)


def _kept(payload: Any, session: Any) -> None:
    """Key and counter are changed together, or not at all."""
    if session is not None:
        session[payload["id"]] = session.get(payload["id"], 0) + 1
        session["blob"] = payload["blob"]
        session.count(runs=1)
