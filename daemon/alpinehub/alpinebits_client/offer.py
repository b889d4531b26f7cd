"""The capabilities that the client sends in a handshake: all that exist in each version, so that
the answer shows everything that the server supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from alpinehub.alpinebits import handshake_json
from alpinehub.alpinebits.action import ACTIONS, PUSH
from alpinehub.alpinebits.protocol import PROTOCOLS, Protocol

#: Capabilities that the hub does not announce as a server, with the year of their first version.
_PUSH_CAPABILITY = "action_OTA_HotelResNotif_GuestRequests"
_MORE_SUPPORTS: Final[Mapping[str, Mapping[str, int]]] = {
    "action_OTA_Read": {"OTA_Read_accept_RoomRates": 2024},
    "action_OTA_HotelRatePlanNotif_RatePlans": {"OTA_HotelRatePlanNotif_accept_full": 2018},
    "action_OTA_HotelRatePlan_BaseRates": {"OTA_HotelRatePlan_BaseRates_deltas": 2018},
}
#: If it were agreed upon, each push would need a BookingThreshold, which the client does not send.
_NOT_OFFERED: Final = "OTA_HotelAvailNotif_accept_BookingThreshold"


def offer() -> str:
    """The JSON for EchoData: all versions that have a handshake."""
    return handshake_json.encode(
        {
            protocol.name: _actions(protocol)
            for protocol in PROTOCOLS.values()
            if not protocol.housekeeping
        }
    )


def _actions(protocol: Protocol) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in ACTIONS:
        if one.is_announced_in(protocol):
            more = _MORE_SUPPORTS.get(one.capability, {})
            names = {name for name, since in more.items() if since <= protocol.year}
            names |= one.supports_in(protocol).keys()
            found[one.capability] = sorted(names - {_NOT_OFFERED})
    return {**found, _PUSH_CAPABILITY: []}


def action_of(capability: str) -> str:
    """The form field `action` for a capability; for an unknown capability its own name."""
    if capability == _PUSH_CAPABILITY:
        return PUSH
    return next((one.name for one in ACTIONS if one.capability == capability), capability)
