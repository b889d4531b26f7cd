"""Pull responses: stored hotel data, converted to the client's protocol version.

What that version does not have is left out. Large data is converted in a child of the pool, if
there is one (large.py).
"""

from __future__ import annotations

import asyncio
import logging

from alpinehub.alpinebits.call import CONVERT_LARGE, POOL_BYTES, Call, run_in_pool
from alpinehub.alpinebits.concurrency_limit import limit_of
from alpinehub.alpinebits.large import Converted, StoredContent, convert
from alpinehub.alpinebits.outcome import SYSTEM_ERROR, MessageRejected, Outcome, error
from alpinehub.models import Hotel
from cordata import fields

_log = logging.getLogger("alpinehub.alpinebits")


async def respond_with(
    call: Call, hotel: Hotel, content: bytes, *, outcome: Outcome | None = None
) -> bytes:
    """A response with `content`, the XML that follows its Success, in the client's version.

    Raises: MessageRejected if the version cannot carry the content at all; then an alert is sent.
    TransportError if large content killed its child (500), or cannot be converted in time
    or not now (503); CommandFailed.
    """
    stored = StoredContent(
        response=call.response,
        content=content,
        code=hotel.code,
        name=hotel.name,
        protocol=call.protocol.name,
    )
    converted = await _convert(call, stored)
    if converted.problem:
        text = f"{call.response} of hotel {hotel} cannot be sent in {call.protocol.name}"
        call.ctx.alert("cannot-be-sent", f"{text}: {converted.problem}", ids=[hotel.code])
        raise MessageRejected(error(SYSTEM_ERROR, "the stored data cannot be sent"))
    if converted.dropped:
        extra = fields(hotel=hotel.code, dropped=converted.dropped)
        _log.info("%s is sent without what its protocol version lacks", call.response, extra=extra)
    return call.respond(outcome or Outcome(), converted.content)


async def _convert(call: Call, stored: StoredContent) -> Converted:
    if len(stored.content) <= POOL_BYTES:
        return await asyncio.to_thread(convert, stored)
    async with limit_of(call.ctx).reading():
        converted = await run_in_pool(
            call, CONVERT_LARGE, stored, type=Converted, what=stored.response
        )
        if converted is None:
            return await asyncio.to_thread(convert, stored)
        return converted
