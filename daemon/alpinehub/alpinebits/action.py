"""The AlpineBits actions: their names, and the table of those that the hub serves, with protocol
versions, capabilities, and required features.

A handshake reads the table; the handlers are in `endpoint.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from alpinehub.alpinebits.protocol import Protocol
from alpinehub.models import Account, Feature

GET_VERSION: Final = "getVersion"
GET_CAPABILITIES: Final = "getCapabilities"
HANDSHAKE: Final = "OTA_Ping:Handshaking"
READ: Final = "OTA_Read:GuestRequests"
ACKNOWLEDGE: Final = "OTA_NotifReport:GuestRequests"
PUSH: Final = "OTA_HotelResNotif:GuestRequests"
STATUS_UPDATE: Final = "OTA_HotelResNotif:GuestRequests_StatusUpdate"
AVAIL: Final = "OTA_HotelAvailNotif:FreeRooms"
INV_COUNT: Final = "OTA_HotelInvCountNotif:FreeRooms"
INVENTORY_PUSH: Final = "OTA_HotelDescriptiveContentNotif:Inventory"
INFO_PUSH: Final = "OTA_HotelDescriptiveContentNotif:Info"
INVENTORY_PULL: Final = "OTA_HotelDescriptiveInfo:Inventory"
INFO_PULL: Final = "OTA_HotelDescriptiveInfo:Info"
RATE_PLANS: Final = "OTA_HotelRatePlanNotif:RatePlans"
BASE_RATES: Final = "OTA_HotelRatePlan:BaseRates"
EVENT_REPORTS: Final = "OTA_HotelPostEventNotif:EventReports"


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """A variant of an action."""

    #: Year of the first protocol version that has it; 0: the same as the action.
    since: int = 0
    #: Announced while it is enabled for all hotels of the account; None: always.
    feature: Feature | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A request that hotel software may make."""

    #: The form field `action`.
    name: str
    #: The action's name in a handshake; "": it is not announced.
    capability: str
    #: Years of the first and last protocol version that has it, and of the last that announces it.
    since: int = 2017
    until: int = 9999
    announced_until: int = 9999
    feature: Feature | None = None
    supports: Mapping[str, Support] = field(default_factory=dict)

    def is_in(self, protocol: Protocol) -> bool:
        """Whether a protocol version has it."""
        return self.since <= protocol.year <= self.until

    def is_announced_in(self, protocol: Protocol) -> bool:
        """Whether a handshake in a protocol version names it."""
        announced = self.capability and protocol.year <= self.announced_until
        return bool(announced) and self.is_in(protocol)

    def supports_in(self, protocol: Protocol) -> dict[str, Support]:
        """The variants that a protocol version has."""
        return {name: one for name, one in self.supports.items() if one.since <= protocol.year}


ACTIONS: Final = (
    Action(name=GET_VERSION, capability="action_getVersion", until=2017),
    Action(name=GET_CAPABILITIES, capability="action_getCapabilities", until=2017),
    # From 2024-10 on every server must have the handshake, so that it is not announced.
    Action(name=HANDSHAKE, capability="action_OTA_Ping", since=2018, announced_until=2022),
    Action(name=READ, capability="action_OTA_Read"),
    # Not announced: a client that may read may also acknowledge.
    Action(name=ACKNOWLEDGE, capability=""),
    Action(
        name=STATUS_UPDATE,
        capability="action_OTA_HotelResNotif_GuestRequests_StatusUpdate",
        since=2022,
        feature="status_update",
    ),
    Action(
        name=AVAIL,
        capability="action_OTA_HotelAvailNotif",
        until=2018,
        supports={
            "OTA_HotelAvailNotif_accept_rooms": Support(feature="rooms"),
            "OTA_HotelAvailNotif_accept_categories": Support(feature="categories"),
            "OTA_HotelAvailNotif_accept_deltas": Support(feature="deltas"),
            "OTA_HotelAvailNotif_accept_BookingThreshold": Support(feature="out_of_market"),
        },
    ),
    Action(
        name=INV_COUNT,
        capability="action_OTA_HotelInvCountNotif",
        since=2020,
        supports={
            "OTA_HotelInvCountNotif_accept_rooms": Support(feature="rooms"),
            "OTA_HotelInvCountNotif_accept_categories": Support(feature="categories"),
            "OTA_HotelInvCountNotif_accept_deltas": Support(feature="deltas"),
            "OTA_HotelInvCountNotif_accept_out_of_order": Support(feature="out_of_order"),
            "OTA_HotelInvCountNotif_accept_out_of_market": Support(feature="out_of_market"),
            "OTA_HotelInvCountNotif_accept_closing_seasons": Support(feature="closing_seasons"),
            "OTA_HotelInvCountNotif_accept_complete_set": Support(
                since=2022, feature="complete_set"
            ),
        },
    ),
    Action(
        name=INVENTORY_PUSH,
        capability="action_OTA_HotelDescriptiveContentNotif_Inventory",
        feature="inventory",
        supports={
            "OTA_HotelDescriptiveContentNotif_Inventory_use_rooms": Support(),
            "OTA_HotelDescriptiveContentNotif_Inventory_occupancy_children": Support(),
        },
    ),
    Action(
        name=INFO_PUSH, capability="action_OTA_HotelDescriptiveContentNotif_Info", feature="info"
    ),
    Action(
        name=INVENTORY_PULL,
        capability="action_OTA_HotelDescriptiveInfo_Inventory",
        feature="inventory",
    ),
    Action(name=INFO_PULL, capability="action_OTA_HotelDescriptiveInfo_Info", feature="info"),
    Action(
        name=RATE_PLANS,
        capability="action_OTA_HotelRatePlanNotif_RatePlans",
        feature="rateplans",
        supports={
            "OTA_HotelRatePlanNotif_accept_ArrivalDOW": Support(),
            "OTA_HotelRatePlanNotif_accept_DepartureDOW": Support(),
            "OTA_HotelRatePlanNotif_accept_RatePlan_BookingRule": Support(),
            "OTA_HotelRatePlanNotif_accept_RatePlan_RoomType_BookingRule": Support(),
            "OTA_HotelRatePlanNotif_accept_RatePlan_mixed_BookingRule": Support(),
            "OTA_HotelRatePlanNotif_accept_Supplements": Support(),
            "OTA_HotelRatePlanNotif_accept_FreeNightsOffers": Support(),
            "OTA_HotelRatePlanNotif_accept_FamilyOffers": Support(),
            "OTA_HotelRatePlanNotif_accept_overlay": Support(),
            "OTA_HotelRatePlanNotif_accept_RatePlanJoin": Support(),
            "OTA_HotelRatePlanNotif_accept_OfferRule_BookingOffset": Support(),
            "OTA_HotelRatePlanNotif_accept_OfferRule_DOWLOS": Support(),
            "OTA_HotelRatePlanNotif_accept_full": Support(since=2024),
        },
    ),
    Action(name=BASE_RATES, capability="action_OTA_HotelRatePlan_BaseRates", feature="baserates"),
    Action(
        name=EVENT_REPORTS,
        capability="action_OTA_HotelPostEventNotif_EventReports",
        since=2020,
        feature="activities",
    ),
)


def announce(account: Account, protocol: Protocol) -> dict[str, frozenset[str]]:
    """The capabilities to announce to an account in a version: capability -> its variants.

    A handshake names no hotel, so only what all hotels of the account offer is announced.
    """

    def is_offered(feature: Feature | None) -> bool:
        return feature is None or all(hotel.offers(feature) for hotel in account.hotels)

    return {
        one.capability: frozenset(
            name
            for name, support in one.supports_in(protocol).items()
            if is_offered(support.feature)
        )
        for one in ACTIONS
        if one.is_announced_in(protocol) and is_offered(one.feature)
    }


def answered_by(action: str) -> str:
    """Name of the message that answers an action."""
    name = action.partition(":")[0]
    return "OTA_ResRetrieveRS" if name == "OTA_Read" else f"{name}RS"
