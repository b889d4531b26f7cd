"""The table of AlpineBits protocol versions and their differences.

Which actions each of them has is in `action.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

_SEND = frozenset(
    {"ALPINEBITS_SEND_FREEROOMS", "ALPINEBITS_SEND_RATEPLANS", "ALPINEBITS_SEND_INVENTORY"}
)


class Protocol(Struct, frozen=True, kw_only=True):
    """One protocol version."""

    name: str
    #: The year of the name; a later version has a greater one.
    year: int
    #: Has the actions getVersion and getCapabilities instead of a handshake.
    housekeeping: bool = False
    #: Values of Warning/@Status and Error/@Status beside ALPINEBITS_HANDSHAKE; empty: neither has
    #: the attribute.
    statuses: frozenset[str] = _SEND
    #: HotelReservation has RoomStayReservation and LastModifyDateTime, so that there are requests
    #: without a stay.
    no_stay: bool = False
    #: Where a SpecialRequest mentions pets: in its Name, its RequestCode; "": nowhere.
    pets: Literal["", "name", "code"] = ""
    #: Has a comment of the name "additional info".
    additional: bool = False
    #: Currencies of rate plans; None: any.
    currencies: frozenset[str] | None = None


_ALL = (
    Protocol(
        name="2017-10",
        year=2017,
        housekeeping=True,
        statuses=frozenset(),
        currencies=frozenset({"EUR"}),
    ),
    Protocol(name="2018-10", year=2018, currencies=frozenset({"EUR"})),
    Protocol(name="2020-10", year=2020, pets="name"),
    Protocol(
        name="2022-10",
        year=2022,
        no_stay=True,
        pets="code",
    ),
    Protocol(
        name="2024-10",
        year=2024,
        statuses=_SEND | {"ALPINEBITS_SEND_HANDSHAKE"},
        no_stay=True,
        pets="code",
        additional=True,
    ),
)
#: Every version by its name, oldest first.
PROTOCOLS: Final[Mapping[str, Protocol]] = {protocol.name: protocol for protocol in _ALL}
NEWEST: Final = _ALL[-1]
