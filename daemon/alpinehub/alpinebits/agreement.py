"""What the software of an account and this server last agreed on, for each protocol version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cordata import Context, Tx

#: Capability -> what is supported of it.
Agreed = Mapping[str, Sequence[str]]

_encode = msgspec.json.Encoder(order="deterministic").encode


async def remember(ctx: Context, account_id: int, common: Mapping[str, Agreed]) -> None:
    """Keep what came of a handshake, by protocol version. Writes nothing that is known already:
    there is software that begins each poll with a handshake. Raises: StoreUnavailable.
    """
    told = {version: _encode(agreed).decode() for version, agreed in common.items()}

    async def look(tx: Tx) -> dict[str, str]:
        rows = await tx.fetch_all("agreement_all", account_id=account_id)
        return {row["protocol"]: row["capabilities"] for row in rows}

    known = await ctx.store.read(look)
    news = {version: text for version, text in told.items() if known.get(version) != text}

    async def unit(tx: Tx) -> None:
        for version, text in sorted(news.items()):
            await tx.write(
                "agreement_set",
                account_id=account_id,
                protocol=version,
                capabilities=text,
                now_us=tx.now_us,
            )

    if news:
        await ctx.store.run(unit)


async def recall(ctx: Context, account_id: int, version: str) -> Agreed:
    """What was agreed on last in a protocol version; nothing without a handshake.

    Raises: StoreUnavailable.
    """

    async def look(tx: Tx) -> Agreed:
        rows = await tx.fetch_all("agreement_all", account_id=account_id)
        found = [row["capabilities"] for row in rows if row["protocol"] == version]
        return msgspec.json.decode(found[0], type=dict[str, list[str]]) if found else {}

    return await ctx.store.read(look)
