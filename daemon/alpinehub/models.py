"""Hotels, sources and logins as records, for code that needs neither store nor runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Struct

#: What hotel software may do with a hotel; the operator can disable each.
Feature = Literal[
    "rooms",
    "categories",
    "deltas",
    "complete_set",
    "closing_seasons",
    "out_of_order",
    "out_of_market",
    "inventory",
    "info",
    "rateplans",
    "baserates",
    "activities",
    "status_update",
]
FEATURES: tuple[Feature, ...] = get_args(Feature)


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`hotel.settings`: what an operator chose for one hotel; a default says: as for all.

    A field is added with a default; what a program does not know is skipped when it reads, so it
    must not write the settings of a hotel from this record alone.
    """

    #: Disabled features: `Feature`, or one of a newer version.
    off: frozenset[str] = frozenset()
    #: Hours without a poll after which hotel software is stale; 0: never.
    stale_after_h: int | None = None
    #: Recipients of the alerts of this hotel; "": only the operator.
    alert_email: str = ""
    #: Language of the mails; "": the hotel's language.
    report_language: str = ""
    #: Name of a retention setting -> days.
    retention: dict[str, int] = {}


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`source.options`: how a form is answered; what a program does not know stays as it is."""

    #: A field of the form that people do not see: what fills it is no guest. "" is none.
    honeypot: str = "website_url"
    #: Where a browser is sent after the form; "" is a page of thanks.
    redirect: str = ""
    #: Zero bits that a proof of work has to begin with (webhooks/form_endpoint.py); "": none asked.
    proof_of_work: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hotel:
    """A hotel that is not disabled."""

    id: int
    code: str
    name: str
    time_zone: str
    language: str
    region: str
    settings: Settings = field(default_factory=Settings)
    #: Whether guest requests are pushed to some account; False only where that is known.
    pushed: bool = True

    def __str__(self) -> str:
        """As an operator reads it."""
        return f"{self.code} ({self.name})"

    @property
    def zone(self) -> tzinfo:
        """Its time zone."""
        return zone_of(self.time_zone)

    def offers(self, feature: Feature) -> bool:
        """Whether the operator left it to the hotel."""
        return feature not in self.settings.off


def is_time_zone(name: str) -> bool:
    """Whether this host has the data of a time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def zone_of(name: str) -> tzinfo:
    """The time zone of this name; UTC if this host does not know it (`cordata doctor` warns): a
    list that is some hours off is better than none. Reports do not use this: no report is better
    than one on the wrong day, and there is an alert.
    """
    return ZoneInfo(name) if is_time_zone(name) else UTC


class OldSecret(Struct, frozen=True, kw_only=True):
    """The secret before a rotation, accepted for a while in addition to the new one."""

    sealed: bytes
    fingerprint: bytes
    #: Microseconds since the epoch.
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where requests of one hotel come from; neither it nor its hotel is disabled."""

    id: int
    hotel: Hotel
    kind: str
    name: str
    #: Sealed with the master key for the context SOURCE_SECRET.
    sealed: bytes
    fingerprint: bytes
    #: The secret before the last rotation; None: no longer accepted.
    before: OldSecret | None = None
    #: JSON of how the fields of a form are mapped (webhooks/fields.py); None: as its kind's.
    mapping: str | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A client account: the login of hotel software, not disabled."""

    id: int
    name: str
    #: As passwords.hash_password made it.
    password: str = field(default="", repr=False)
    #: The one before the last rotation, and until when it is taken (microseconds since the epoch).
    password_before: str | None = field(default=None, repr=False)
    before_until: int | None = None
    #: Those it may read, none of them disabled.
    hotels: tuple[Hotel, ...]

    def hotel(self, code: str | None, name: str | None = None) -> Hotel | None:
        """The hotel of the account that is meant; None for another's, and for one that does not
        exist.

        The code decides where it is given; a name must be that of only one of its hotels.
        """
        if code is not None:
            return next((hotel for hotel in self.hotels if hotel.code == code), None)
        named = [hotel for hotel in self.hotels if hotel.name == name]
        return named[0] if len(named) == 1 else None
