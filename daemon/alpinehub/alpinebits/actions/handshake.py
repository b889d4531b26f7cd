"""OTA_Ping:Handshaking: what the client and this server have in common, by version, action and
support.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from alpinehub.alpinebits.agreement import remember
from alpinehub.alpinebits.call import Answer, Call, read, respond
from alpinehub.alpinebits.capability import SERVED, announce
from alpinehub.alpinebits.markup import text
from alpinehub.alpinebits.outcome import INVALID_VALUE, failed, opening
from alpinehub.alpinebits.reader import Reader

if TYPE_CHECKING:
    from lxml.etree import _Element

#: Protocol version -> capability -> what it supports.
Capabilities = Mapping[str, Mapping[str, frozenset[str]]]
#: The same, of what both sides can.
Common = Mapping[str, Mapping[str, Sequence[str]]]


class _Action(msgspec.Struct, omit_defaults=True):
    action: str
    supports: list[str] | None = None


class _Version(msgspec.Struct, omit_defaults=True):
    version: str
    actions: list[_Action] | None = None


class _Offer(msgspec.Struct, omit_defaults=True):
    versions: list[_Version] | None = None


class NoCapabilities(Exception):
    """The EchoData is not the JSON of a handshake."""


def _read(root: _Element) -> str:
    return root[0].text or ""


#: The EchoData, as received.
ECHO = Reader(root="OTA_PingRQ", read=_read, type=str)


async def handshake(call: Call) -> Answer:
    """What both can, and what the client sent."""
    echo = await read(call, ECHO)
    ours = {name: announce(call.account, protocol) for name, protocol in SERVED.items()}
    try:
        common = intersect(echo, ours)
    except NoCapabilities:
        problem = "EchoData is not the JSON of a handshake"
        return respond(call, "OTA_PingRS", failed(INVALID_VALUE, problem))
    await remember(call.ctx, call.account.id, common)
    return ping(tell(common), echo)


def ping(common: str, echo: str) -> bytes:
    """The response."""
    return (
        f"{opening('OTA_PingRS')}<Success/><Warnings>"
        f'<Warning Type="11" Status="ALPINEBITS_HANDSHAKE">{text(common)}</Warning>'
        f"</Warnings><EchoData>{text(echo)}</EchoData></OTA_PingRS>"
    ).encode()


def intersect(echo: str, ours: Capabilities) -> Common:
    """What both sides can, in the order of the client's EchoData; what comes twice is taken
    together. Raises: NoCapabilities.
    """
    offered: dict[str, dict[str, set[str]]] = {}
    for version in _decode(echo).versions or []:
        actions = offered.setdefault(version.version, {})
        for action in version.actions or []:
            actions.setdefault(action.action, set()).update(action.supports or [])
    return {
        version: {
            action: sorted(supports & ours[version][action])
            for action, supports in actions.items()
            if action in ours[version]
        }
        for version, actions in offered.items()
        if version in ours
    }


def tell(common: Common) -> str:
    """The JSON of a handshake; empty arrays are left out."""
    versions = [
        _Version(
            name, [_Action(one, [*supports] or None) for one, supports in told.items()] or None
        )
        for name, told in common.items()
    ]
    return msgspec.json.encode(_Offer(versions or None)).decode()


def _decode(echo: str) -> _Offer:
    """Tries the text as it is, then with its character references resolved: some clients escape
    the JSON once more than XML asks for.
    """
    for said in (echo, html.unescape(echo)):
        try:
            return msgspec.json.decode(said.encode(), type=_Offer)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
    raise NoCapabilities
