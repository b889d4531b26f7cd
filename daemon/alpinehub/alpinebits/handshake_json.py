"""The JSON of a handshake: protocol versions, their actions, and what an action supports.

    {"versions": [{"version": "2024-10", "actions": [
        {"action": "action_OTA_Read", "supports": ["OTA_Read_accept_RoomRates"]}]}]}

The client sends it in EchoData; the server answers in the same form with what both support.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class NoCapabilities(ValueError):
    """The text is not the JSON of a handshake."""


class _Action(msgspec.Struct, omit_defaults=True):
    """The capability of an action, and its variants. null is the same as leaving an array out."""

    action: str
    supports: tuple[str, ...] | None = ()


class _Version(msgspec.Struct, omit_defaults=True):
    version: str
    actions: tuple[_Action, ...] | None = ()


class _Handshake(msgspec.Struct, omit_defaults=True):
    versions: tuple[_Version, ...] | None = ()


def encode(capabilities: Mapping[str, Mapping[str, Iterable[str]]]) -> str:
    """The JSON of version -> action -> supports; empty arrays are left out, as the standard
    requires.
    """
    versions = (
        _Version(name, tuple(_Action(action, tuple(some)) for action, some in actions.items()))
        for name, actions in capabilities.items()
    )
    return msgspec.json.encode(_Handshake(tuple(versions))).decode()


def decode(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Version -> action -> supports; repeated entries are merged. Raises: NoCapabilities."""
    try:
        handshake = msgspec.json.decode(text.encode(), type=_Handshake)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise NoCapabilities from None
    merged: dict[str, dict[str, dict[str, None]]] = {}
    for version in handshake.versions or ():
        actions = merged.setdefault(version.version, {})
        for one in version.actions or ():
            actions.setdefault(one.action, {}).update(dict.fromkeys(one.supports or ()))
    return {
        version: {action: tuple(supports) for action, supports in actions.items()}
        for version, actions in merged.items()
    }
