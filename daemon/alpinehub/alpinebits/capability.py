"""What this server announces in which protocol version: nothing that it cannot do.

Data only, so that the handshake can read it; the handlers are in `action.py`, and a test holds the
two tables together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from alpinehub.alpinebits.protocol import (
    AVAIL,
    BASE_RATES,
    EVENT_REPORTS,
    GET_CAPABILITIES,
    GET_VERSION,
    HANDSHAKE,
    INFO_PULL,
    INFO_PUSH,
    INV_COUNT,
    INVENTORY_PULL,
    INVENTORY_PUSH,
    NEWEST,
    PROTOCOLS,
    RATE_PLANS,
    READ,
    STATUS_UPDATE,
    Protocol,
)
from alpinehub.models import Account, Feature


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """A variant of an action."""

    #: Years of the first and last protocol version that has it.
    since: int
    until: int = NEWEST
    #: Announced while it is enabled for all hotels of the account; None: always.
    feature: Feature | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """An action as it is announced."""

    name: str
    #: The form field `action` that it announces.
    action: str
    since: int
    until: int = NEWEST
    feature: Feature | None = None
    supports: Mapping[str, Support] = field(default_factory=dict)


#: An action without one is not announced: who can read guest requests can acknowledge them.
CAPABILITIES: Final = (
    Capability(name="action_getVersion", action=GET_VERSION, since=2017, until=2017),
    Capability(name="action_getCapabilities", action=GET_CAPABILITIES, since=2017, until=2017),
    # From 2024-10 on the handshake goes without saying.
    Capability(name="action_OTA_Ping", action=HANDSHAKE, since=2018, until=2022),
    Capability(name="action_OTA_Read", action=READ, since=2017),
    Capability(
        name="action_OTA_HotelResNotif_GuestRequests_StatusUpdate",
        action=STATUS_UPDATE,
        since=2022,
        feature="status_update",
    ),
    Capability(
        name="action_OTA_HotelAvailNotif",
        action=AVAIL,
        since=2017,
        until=2018,
        supports={
            "OTA_HotelAvailNotif_accept_rooms": Support(since=2017, feature="rooms"),
            "OTA_HotelAvailNotif_accept_categories": Support(since=2017, feature="categories"),
            "OTA_HotelAvailNotif_accept_deltas": Support(since=2017, feature="deltas"),
            "OTA_HotelAvailNotif_accept_BookingThreshold": Support(
                since=2017, feature="out_of_market"
            ),
        },
    ),
    Capability(
        name="action_OTA_HotelInvCountNotif",
        action=INV_COUNT,
        since=2020,
        supports={
            "OTA_HotelInvCountNotif_accept_rooms": Support(since=2020, feature="rooms"),
            "OTA_HotelInvCountNotif_accept_categories": Support(since=2020, feature="categories"),
            "OTA_HotelInvCountNotif_accept_deltas": Support(since=2020, feature="deltas"),
            "OTA_HotelInvCountNotif_accept_out_of_order": Support(
                since=2020, feature="out_of_order"
            ),
            "OTA_HotelInvCountNotif_accept_out_of_market": Support(
                since=2020, feature="out_of_market"
            ),
            "OTA_HotelInvCountNotif_accept_closing_seasons": Support(
                since=2020, feature="closing_seasons"
            ),
            "OTA_HotelInvCountNotif_accept_complete_set": Support(
                since=2022, feature="complete_set"
            ),
        },
    ),
    Capability(
        name="action_OTA_HotelDescriptiveContentNotif_Inventory",
        action=INVENTORY_PUSH,
        since=2017,
        feature="inventory",
        supports={
            "OTA_HotelDescriptiveContentNotif_Inventory_use_rooms": Support(since=2017),
            "OTA_HotelDescriptiveContentNotif_Inventory_occupancy_children": Support(since=2017),
        },
    ),
    Capability(
        name="action_OTA_HotelDescriptiveContentNotif_Info",
        action=INFO_PUSH,
        since=2017,
        feature="info",
    ),
    Capability(
        name="action_OTA_HotelDescriptiveInfo_Inventory",
        action=INVENTORY_PULL,
        since=2017,
        feature="inventory",
    ),
    Capability(
        name="action_OTA_HotelDescriptiveInfo_Info", action=INFO_PULL, since=2017, feature="info"
    ),
    Capability(
        name="action_OTA_HotelRatePlanNotif_RatePlans",
        action=RATE_PLANS,
        since=2017,
        feature="rateplans",
        supports={
            f"OTA_HotelRatePlanNotif_accept_{what}": Support(since=since)
            for what, since in (
                ("ArrivalDOW", 2017),
                ("DepartureDOW", 2017),
                ("RatePlan_BookingRule", 2017),
                ("RatePlan_RoomType_BookingRule", 2017),
                ("RatePlan_mixed_BookingRule", 2017),
                ("Supplements", 2017),
                ("FreeNightsOffers", 2017),
                ("FamilyOffers", 2017),
                ("overlay", 2017),
                ("RatePlanJoin", 2017),
                ("OfferRule_BookingOffset", 2017),
                ("OfferRule_DOWLOS", 2017),
                ("full", 2024),
            )
        },
    ),
    Capability(
        name="action_OTA_HotelRatePlan_BaseRates",
        action=BASE_RATES,
        since=2017,
        feature="baserates",
    ),
    Capability(
        name="action_OTA_HotelPostEventNotif_EventReports",
        action=EVENT_REPORTS,
        since=2020,
        feature="activities",
    ),
)

#: The versions that are served, by name, oldest first.
SERVED: Final[Mapping[str, Protocol]] = {
    name: protocol
    for name, protocol in PROTOCOLS.items()
    if any(one.since <= protocol.year <= one.until for one in CAPABILITIES)
}


def announce(account: Account, protocol: Protocol) -> dict[str, frozenset[str]]:
    """What an account's software may do in a version: capability -> what it supports.

    One request may be about several hotels, so only what all of them offer is announced.
    """

    def is_announced(one: Capability | Support) -> bool:
        served = one.since <= protocol.year <= one.until
        feature = one.feature
        return served and (feature is None or all(h.offers(feature) for h in account.hotels))

    return {
        one.name: frozenset(name for name, support in one.supports.items() if is_announced(support))
        for one in CAPABILITIES
        if is_announced(one)
    }
