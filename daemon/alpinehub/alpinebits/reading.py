"""Where an acknowledgement is read: a large one in a child of the pool, so that it neither holds up
the other requests of this worker, by the turns of its threads, nor can harm it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from alpinehub.alpinebits.message import Acknowledgement, Outcome, read_acknowledgement
from alpinehub.alpinebits.refusal import Refusal
from alpinehub.pooled import in_the_pool
from cordata import CommandPoisoned, PoolError, WorkerCrashed

if TYPE_CHECKING:
    from alpinehub.alpinebits.version import Version
    from cordata import Context

#: The command: `alpinehub.alpinebits.message.read_large`.
READ_LARGE = "read_acknowledgement"
#: Documents above it are for the pool: 2,500 acknowledgements.
LARGE_BYTES = 256 * 1024
#: One of 2 MiB takes 0.4 s; then it is read here, beside the loop.
_TIMEOUT_S = 3.0


async def read(ctx: Context, data: bytes, version: Version) -> Acknowledgement:
    """What a large OTA_NotifReportRQ reports. Raises: Refusal."""
    payload = {"document": data, "version": version.name}
    try:
        told = await in_the_pool(ctx, READ_LARGE, payload, timeout_s=_TIMEOUT_S, type=Outcome)
    except WorkerCrashed:  # it would be this worker's turn to die
        raise Refusal(500, "the request cannot be read") from None
    except CommandPoisoned:
        raise Refusal(503, "large requests cannot be read at the moment; try again") from None
    except PoolError as error:
        ctx.log.warning("a large acknowledgement is read here, not by the pool (%s)", error.code)
        return await asyncio.to_thread(read_acknowledgement, data, version)
    if told.acknowledgement is None:
        raise Refusal(told.status, told.text)
    return told.acknowledgement
