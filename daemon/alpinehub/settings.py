"""[alpinehub] of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from alpinehub.hotels import addresses_of

#: Days for which data is kept; 0: for ever. At most what `alpinehub hotel set --retention` takes.
Days = Annotated[int, Meta(ge=0, le=99_999)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """[alpinehub]: the hub."""

    #: Make the hotel DEMO, its account demo/demo and its webhook secrets at start. Never in
    #: production: these secrets are public.
    demo: bool = False
    #: Addresses that get the daily report of every hotel, in addition to the hotel's own.
    report_to: tuple[str, ...] = ()
    #: Hours after which hotel software that does not poll, or does not acknowledge what it fetched,
    #: causes an alert, unless its hotel has another setting; 0: never.
    stale_after_h: int = 24
    #: Addresses that get the daily summary of all hotels.
    portfolio_to: tuple[str, ...] = ()
    #: Time zone of the summary (it is due at 8:00), and its language: de, it or en.
    portfolio_zone: str = "Europe/Rome"
    #: See portfolio_zone.
    portfolio_language: str = "de"
    #: Guest requests may be pushed (`alpinehub account push`) to addresses of this machine and of
    #: private networks, too, and there without TLS.
    push_private: bool = False
    #: Forms (sources of the kind form) have an address that everybody can read. At most this many
    #: submissions at once are taken from one address (IPv6: one /64), of all forms together; more
    #: are 429.
    form_burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    #: ... and this many a minute after that; 0: no limit.
    form_per_minute: Annotated[float, Meta(ge=0, le=1_000_000)] = 5.0
    #: Of one form from all addresses; 0: no limit.
    form_per_hour: Annotated[int, Meta(ge=0, le=1_000_000)] = 600
    #: Days for which data is kept, unless its hotel has another setting; 0: for ever. Here: the
    #: text of a submission that was interpreted.
    inbox_days: Days = 90
    #: A submission that waits in the review list: then it is rejected and its text is deleted. An
    #: alert names it two weeks before.
    review_days: Days = 180
    #: The history of a request.
    history_days: Days = 730
    #: A whole request since its last change, when its stay is over and nothing of it waits.
    reservation_days: Days = 0
    #: A customer since the last request: then they are erased, as by `alpinehub customer erase`.
    customer_days: Days = 1095
    #: Records of inbound messages.
    inbound_days: Days = 90

    def __post_init__(self) -> None:
        """Raises: ValueError for an invalid setting."""
        if 0 < self.form_per_minute < 0.01:
            raise ValueError(
                f"form_per_minute: must be 0 or at least 0.01, not {self.form_per_minute}"
            )
        for key, addresses in (("report_to", self.report_to), ("portfolio_to", self.portfolio_to)):
            for one in addresses:
                if addresses_of(one) != [one]:
                    raise ValueError(f"{key}: {one!r} is no e-mail address, like name@example.com")
