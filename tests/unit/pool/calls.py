"""Calls for the tests of the pool's rules."""

from __future__ import annotations

import itertools
from typing import Any

from cordata.core.pool.call import Call

_serials = itertools.count(1)


def call(now: float = 0.0, *, timeout_s: float = 1000.0, **fields: Any) -> Call:
    """A call that arrives now; `size_bytes` is 10."""
    serial = next(_serials)
    return Call(
        serial=serial,
        enqueued=now,
        deadline=now + timeout_s,
        **{
            "queue_deadline": now + timeout_s,
            "command": "echo",
            "id": serial,
            "size_bytes": 10,
            **fields,
        },
    )
