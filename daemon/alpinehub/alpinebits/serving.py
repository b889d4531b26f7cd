"""What is stored, told to who asks for it, in his protocol version; much of it in a child of the
pool, where there is one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from alpinehub.alpinebits.call import POOL_BYTES, Call, respond
from alpinehub.alpinebits.concurrency_limit import limit_of
from alpinehub.alpinebits.fitting import Fitted, Telling, fit
from alpinehub.alpinebits.outcome import Outcome, failed
from alpinehub.pooled import in_the_pool
from cordata import PoolError, fields

if TYPE_CHECKING:
    from alpinehub.models import Hotel

#: The command: `alpinehub.alpinebits.fitting.fit_large`.
FIT_LARGE = "fit_message"
SYSTEM_ERROR: Final = 448

_log = logging.getLogger("alpinehub.alpinebits")


async def serve(
    call: Call, hotel: Hotel, response: str, content: bytes, *, outcome: Outcome | None = None
) -> bytes:
    """A response with `content`, XML of what follows its Success, as the caller's version has it.

    What cannot be told in it at all is an error, and an alert.
    """
    told = Telling(
        response=response,
        content=content,
        code=hotel.code,
        name=hotel.name,
        protocol=call.protocol.name,
    )
    fitted = await _fit(call, told)
    if fitted.unfit:
        text = f"{response} of hotel {hotel} cannot be told in {call.protocol.name}"
        call.ctx.alert("cannot-be-told", f"{text}: {fitted.unfit}", ids=[hotel.code])
        return respond(call, response, failed(SYSTEM_ERROR, "what is stored cannot be told"))
    if fitted.dropped:
        extra = fields(hotel=hotel.code, dropped=fitted.dropped)
        _log.info("%s is sent without what its version does not have", response, extra=extra)
    return respond(call, response, outcome or Outcome(), fitted.inside)


async def _fit(call: Call, told: Telling) -> Fitted:
    if len(told.content) <= POOL_BYTES:
        return await asyncio.to_thread(fit, told)
    async with limit_of(call.ctx).reading():
        payload = msgspec.structs.asdict(told)
        try:
            return await in_the_pool(call.ctx, FIT_LARGE, payload, timeout_s=8.0, type=Fitted)
        except PoolError as error:
            _log.warning("a large %s is made here, not by the pool (%s)", told.response, error.code)
            return await asyncio.to_thread(fit, told)
