"""The JSON of a handshake: protocol versions, their actions, and what an action supports.

    {"versions": [{"version": "2024-10", "actions": [
        {"action": "action_OTA_Read", "supports": ["OTA_Read_accept_RoomRates"]}]}]}

The client sends it in EchoData; the server answers in the same form with what both support.
"""

from __future__ import annotations

import msgspec


class NoCapabilities(ValueError):
    """The text is not the JSON of a handshake."""


class Action(msgspec.Struct, omit_defaults=True):
    """The capability of an action, and its variants."""

    action: str
    #: None: it was sent as null. Empty: it is left out, as the standard requires.
    supports: tuple[str, ...] | None = ()


class Version(msgspec.Struct, omit_defaults=True):
    """A protocol version and its actions."""

    version: str
    actions: tuple[Action, ...] | None = ()


class Handshake(msgspec.Struct, omit_defaults=True):
    """The document."""

    versions: tuple[Version, ...] | None = ()


def encode(versions: tuple[Version, ...]) -> str:
    """The JSON; empty arrays are left out."""
    return msgspec.json.encode(Handshake(versions)).decode()


def decode(text: str) -> Handshake:
    """Read the JSON. Raises: NoCapabilities."""
    try:
        return msgspec.json.decode(text.encode(), type=Handshake)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise NoCapabilities from None
