"""The protocol versions this server speaks, and what it announces in each: nothing it cannot do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HANDSHAKE: Final = "OTA_Ping:Handshaking"
READ: Final = "OTA_Read:GuestRequests"
ACKNOWLEDGE: Final = "OTA_NotifReport:GuestRequests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One protocol version: what is announced, and where its messages differ from the others'."""

    name: str
    #: Values of the form field `action` that are answered.
    actions: frozenset[str]
    #: Announced capability -> what it supports. An action without a capability is left out.
    capabilities: dict[str, frozenset[str]]
    #: BasicPropertyInfo/@HotelCode may be this long; None: any length.
    max_hotel_code_chars: int | None
    #: OTA_NotifReportRS may hold Warnings.
    acknowledgement_warnings: bool
    #: RoomStayReservation, LastModifyDateTime and requests without a room stay exist.
    newsletter: bool


_GUEST_REQUESTS = frozenset({HANDSHAKE, READ, ACKNOWLEDGE})
_PING: dict[str, frozenset[str]] = {"action_OTA_Ping": frozenset()}
_OTA_READ: dict[str, frozenset[str]] = {"action_OTA_Read": frozenset()}

_ALL = (
    Version(
        name="2020-10",
        actions=_GUEST_REQUESTS,
        capabilities=_PING | _OTA_READ,
        max_hotel_code_chars=None,
        acknowledgement_warnings=False,
        newsletter=False,
    ),
    Version(
        name="2022-10",
        actions=_GUEST_REQUESTS,
        capabilities=_PING | _OTA_READ,
        max_hotel_code_chars=16,
        acknowledgement_warnings=True,
        newsletter=True,
    ),
    Version(
        name="2024-10",
        actions=_GUEST_REQUESTS,
        capabilities=_OTA_READ,  # the handshake is implicit from here on
        max_hotel_code_chars=16,
        acknowledgement_warnings=True,
        newsletter=True,
    ),
)
#: Every version by its name, oldest first.
VERSIONS: Final[dict[str, Version]] = {version.name: version for version in _ALL}

#: What a version of this protocol looks like ("2015-07b" existed); the year alone does not tell.
_WELL_FORMED = re.compile(r"[0-9]{4}-[0-9]{2}[a-z]?")


def well_formed(name: str) -> bool:
    """Whether this could be the name of a protocol version, known to us or not."""
    return _WELL_FORMED.fullmatch(name) is not None
