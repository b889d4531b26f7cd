"""What a lenient source sends is in the inbox before anybody asks what it means.

    POST .... one commit: the row `received`, the event inbox.received .... answer
    event ... interpretation (inbox/processing.py): mapped, or in the review list, or set aside

A crash in between loses nothing: the event is delivered again, and what none came for is taken up
by the primary.
"""

from __future__ import annotations

from alpinehub.models import Source
from cordata import Context, Tx, request_id

EVENT = "inbox.received"


async def receive(ctx: Context, source: Source, body: bytes, *, headers: str) -> int:
    """Store what came; its number in the inbox, after the commit. Raises: StoreUnavailable.

    `headers`: JSON of those worth keeping.
    """
    given = request_id.get()
    return await ctx.run(lambda tx: store(tx, source, body, headers=headers, given=given))


async def store(tx: Tx, source: Source, body: bytes, *, headers: str, given: str) -> int:
    """The unit of `receive`. `given`: the id of the request."""
    row = await tx.fetch_one(
        "inbox_receive",
        source_id=source.id,
        now=tx.now_us,
        headers=headers,
        body=body,
        request_id=given,
    )
    assert row is not None
    inbox_id = int(row["id"])
    await tx.publish(EVENT, {"inbox_id": inbox_id, "source_id": source.id})
    return inbox_id
