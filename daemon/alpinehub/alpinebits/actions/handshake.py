"""Handshakes: client and server agree on versions, actions and capabilities.

    from 2018-10 ... OTA_Ping:Handshaking: the answer is what both client and server support
    2017-10 ........ getVersion, getCapabilities: one line of text each

The result of the last handshake is stored for each account and protocol version.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from alpinehub.alpinebits import handshake_json
from alpinehub.alpinebits.action import announce
from alpinehub.alpinebits.call import Call, PlainText, ResponseBody, read
from alpinehub.alpinebits.document import escape_text
from alpinehub.alpinebits.handshake_json import NoCapabilities
from alpinehub.alpinebits.outcome import INVALID_VALUE, Finding, MessageRejected, Outcome, error
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.alpinebits.reader import Reader
from cordata import Context, Tx

if TYPE_CHECKING:
    from lxml.etree import _Element

#: Protocol version -> capability -> what it supports.
Capabilities = Mapping[str, Mapping[str, frozenset[str]]]
#: Capability -> what both sides support of it.
Agreed = Mapping[str, Sequence[str]]
#: Protocol version -> what both sides support.
Common = Mapping[str, Agreed]


def _read(root: _Element) -> str:
    return root[0].text or ""


#: The EchoData, as received.
ECHO = Reader(root="OTA_PingRQ", read=_read)

_encode = msgspec.json.Encoder(order="deterministic").encode


async def handshake(call: Call) -> ResponseBody:
    """OTA_Ping:Handshaking: what both sides support, and the client's EchoData."""
    echo = await read(call, ECHO)
    ours = {name: announce(call.account, protocol) for name, protocol in PROTOCOLS.items()}
    try:
        common = intersect(echo, ours)
    except NoCapabilities:
        problem = "EchoData is not the JSON of a handshake"
        raise MessageRejected(error(INVALID_VALUE, problem)) from None
    await _store_agreed(call.ctx, call.account.id, common)
    text = handshake_json.encode(common)
    finding = Finding(kind="advisory", text=text, status="ALPINEBITS_HANDSHAKE")
    return call.respond(Outcome((finding,)), f"<EchoData>{escape_text(echo)}</EchoData>")


async def send_version(call: Call) -> ResponseBody:
    """getVersion: the client's version, the only one that has this action."""
    return PlainText(f"OK:{call.protocol.name}")


async def send_capabilities(call: Call) -> ResponseBody:
    """getCapabilities: the actions and their capabilities, in one list."""
    announced = announce(call.account, call.protocol)
    names = [name for action, supports in announced.items() for name in (action, *sorted(supports))]
    return PlainText(f"OK:{','.join(names)}")


async def last_agreed(ctx: Context, account_id: int, version: str) -> Agreed:
    """The result of the last handshake for a protocol version; empty if there was none.

    Raises: StoreUnavailable.
    """
    known = await _stored(ctx, account_id)
    return msgspec.json.decode(known.get(version, "{}"), type=dict[str, list[str]])


async def _stored(ctx: Context, account_id: int) -> dict[str, str]:
    """Protocol version -> what both sides support of it, as JSON. Raises: StoreUnavailable."""

    async def look(tx: Tx) -> dict[str, str]:
        rows = await tx.fetch_all("agreement_all", account_id=account_id)
        return {row["protocol"]: row["capabilities"] for row in rows}

    return await ctx.store.read(look)


async def _store_agreed(ctx: Context, account_id: int, common: Common) -> None:
    """Store the result of a handshake. Writes only what has changed: some software begins each poll
    with a handshake. Raises: StoreUnavailable.
    """
    agreed = {version: _encode(one).decode() for version, one in common.items()}
    known = await _stored(ctx, account_id)
    news = {version: text for version, text in agreed.items() if known.get(version) != text}

    async def unit(tx: Tx) -> None:
        for version, text in sorted(news.items()):
            await tx.write(
                "agreement_set", account_id=account_id, protocol=version, capabilities=text
            )

    if news:
        await ctx.store.run(unit)


def intersect(echo: str, ours: Capabilities) -> Common:
    """What both sides support, in the order of the client's EchoData. Raises: NoCapabilities."""
    try:
        offered = handshake_json.decode(echo)
    except NoCapabilities:  # some clients escape the JSON twice
        offered = handshake_json.decode(html.unescape(echo))
    return {
        version: {
            action: sorted(ours[version][action].intersection(supports))
            for action, supports in actions.items()
            if action in ours[version]
        }
        for version, actions in offered.items()
        if version in ours
    }
