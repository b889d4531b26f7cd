"""The capabilities that hotel software sends in a handshake: all that exist, version by version,
so that the server's answer shows all that the server can; and what is read of that answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from alpinehub.alpinebits import handshake_json
from alpinehub.alpinebits.handshake_json import Action, Version
from alpinehub.alpinebits.protocol import HANDSHAKE, NEWEST, PROTOCOLS, READ, Protocol


@dataclass(frozen=True, slots=True)
class _Offered:
    name: str
    since: int
    until: int = NEWEST
    #: Names, each with the year of the first version that has it.
    supports: tuple[tuple[str, int], ...] = ()


def _from(year: int, *names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, year) for name in names)


_AVAIL = "OTA_HotelAvailNotif_accept_"
_COUNT = "OTA_HotelInvCountNotif_accept_"
_INVENTORY = "OTA_HotelDescriptiveContentNotif_Inventory_"
_RATES = "OTA_HotelRatePlanNotif_accept_"

_OFFERED = (
    _Offered("action_OTA_Ping", 2018, 2022),
    _Offered("action_OTA_Read", 2018, supports=_from(2024, "OTA_Read_accept_RoomRates")),
    _Offered("action_OTA_HotelResNotif_GuestRequests", 2018),
    _Offered("action_OTA_HotelResNotif_GuestRequests_StatusUpdate", 2022),
    _Offered(
        "action_OTA_HotelAvailNotif",
        2018,
        2018,
        # Not BookingThreshold: if agreed upon, each push must have it, and ours has not.
        _from(2018, *(_AVAIL + name for name in ("rooms", "categories", "deltas"))),
    ),
    _Offered(
        "action_OTA_HotelInvCountNotif",
        2020,
        supports=(
            *_from(2020, f"{_COUNT}rooms", f"{_COUNT}categories", f"{_COUNT}deltas"),
            *_from(2020, f"{_COUNT}out_of_order", f"{_COUNT}out_of_market"),
            *_from(2020, f"{_COUNT}closing_seasons"),
            *_from(2022, f"{_COUNT}complete_set"),
        ),
    ),
    _Offered(
        "action_OTA_HotelDescriptiveContentNotif_Inventory",
        2018,
        supports=_from(2018, f"{_INVENTORY}use_rooms", f"{_INVENTORY}occupancy_children"),
    ),
    _Offered("action_OTA_HotelDescriptiveContentNotif_Info", 2018),
    _Offered("action_OTA_HotelDescriptiveInfo_Inventory", 2018),
    _Offered("action_OTA_HotelDescriptiveInfo_Info", 2018),
    _Offered(
        "action_OTA_HotelRatePlanNotif_RatePlans",
        2018,
        supports=tuple(
            (_RATES + name, 2018)
            for name in (
                "ArrivalDOW", "DepartureDOW", "RatePlan_BookingRule",
                "RatePlan_RoomType_BookingRule", "RatePlan_mixed_BookingRule", "Supplements",
                "FreeNightsOffers", "FamilyOffers", "overlay", "full", "RatePlanJoin",
                "OfferRule_BookingOffset", "OfferRule_DOWLOS",
            )
        ),
    ),
    _Offered(
        "action_OTA_HotelRatePlan_BaseRates",
        2018,
        supports=_from(2018, "OTA_HotelRatePlan_BaseRates_deltas"),
    ),
    _Offered("action_OTA_HotelPostEventNotif_EventReports", 2020),
)  # fmt: skip


def offer() -> str:
    """The JSON for EchoData: all versions that have a handshake."""
    return handshake_json.encode(
        tuple(
            Version(protocol.name, tuple(_actions(protocol)))
            for protocol in PROTOCOLS.values()
            if not protocol.housekeeping
        )
    )


def _actions(protocol: Protocol) -> Iterator[Action]:
    for one in _OFFERED:
        if one.since <= protocol.year <= one.until:
            yield Action(
                one.name, tuple(name for name, since in one.supports if since <= protocol.year)
            )


#: Capabilities whose action is not named as they are.
_ACTIONS = {
    "action_OTA_Ping": HANDSHAKE,
    "action_OTA_Read": READ,
    "action_OTA_HotelAvailNotif": "OTA_HotelAvailNotif:FreeRooms",
    "action_OTA_HotelInvCountNotif": "OTA_HotelInvCountNotif:FreeRooms",
}


def action_of(capability: str) -> str:
    """The form field `action` of a capability.

    action_OTA_HotelResNotif_GuestRequests_StatusUpdate: the message, a colon, and the rest.
    """
    if known := _ACTIONS.get(capability):
        return known
    message, _, rest = capability.removeprefix("action_OTA_").partition("_")
    return f"OTA_{message}:{rest}" if rest else capability.removeprefix("action_")


def read_common(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Version -> action -> supports, of the JSON in a handshake. Raises: NoCapabilities."""
    return {
        version.version: {one.action: one.supports or () for one in version.actions or ()}
        for version in handshake_json.decode(text).versions or ()
    }
