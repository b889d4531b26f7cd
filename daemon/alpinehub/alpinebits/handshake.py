"""The handshake: what the client and this server have in common, by version, action and support."""

from __future__ import annotations

import html
from typing import Any

import msgspec

from alpinehub.alpinebits.version import VERSIONS


class _Action(msgspec.Struct):
    action: str
    supports: list[str] | None = None


class _Version(msgspec.Struct):
    version: str
    actions: list[_Action] | None = None


class _Capabilities(msgspec.Struct):
    versions: list[_Version] | None = None


class NoCapabilities(Exception):
    """The EchoData is not the JSON of a handshake."""


def intersect(echo: str) -> str:
    """The JSON of what both sides can, from the client's EchoData.

    Empty arrays are left out; what comes twice is taken together. Raises: NoCapabilities.
    """
    offered: dict[str, dict[str, set[str]]] = {}
    for version in _decode(echo).versions or []:
        actions = offered.setdefault(version.version, {})
        for action in version.actions or []:
            actions.setdefault(action.action, set()).update(action.supports or [])
    versions = [_common(name, actions) for name, actions in offered.items() if name in VERSIONS]
    return msgspec.json.encode({"versions": versions} if versions else {}).decode()


def _common(name: str, offered: dict[str, set[str]]) -> dict[str, Any]:
    ours = VERSIONS[name].capabilities
    actions: list[dict[str, Any]] = []
    for action, supports in offered.items():
        if action in ours:
            both = sorted(supports & ours[action])
            actions.append({"action": action, "supports": both} if both else {"action": action})
    return {"version": name, "actions": actions} if actions else {"version": name}


def _decode(echo: str) -> _Capabilities:
    """Tries the text as it is, then with its character references resolved: some clients escape
    the JSON once more than XML asks for.
    """
    for text in (echo, html.unescape(echo)):
        try:
            return msgspec.json.decode(text.encode(), type=_Capabilities)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
    raise NoCapabilities
