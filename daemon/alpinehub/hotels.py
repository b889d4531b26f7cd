"""Hotels as the operator manages them: add, list, disable. Effective in all workers in a second."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cordata import CordataError, Store, Tx

_CODE = re.compile(r"[\x21-\x7e]{1,16}")
_LANGUAGE = re.compile(r"[a-z]{2}")
_REGION = re.compile(r"[A-Z]{2}")


class Unusable(CordataError):
    """What was asked for cannot be done; nothing was changed."""

    code = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHotel:
    """A hotel to be added."""

    #: As AlpineBits knows it: 1 to 16 visible ASCII characters.
    code: str
    #: 1 to 128 characters.
    name: str
    #: IANA name, for the hotel's own day.
    time_zone: str = "Europe/Rome"
    #: ISO 639-1.
    language: str = "de"
    #: ISO 3166: where telephone numbers without a country code are from.
    region: str = "IT"
    #: Who gets the daily report; several addresses with commas between.
    report_email: str | None = None


def check_hotel(hotel: NewHotel) -> None:
    """Raises: Unusable with every problem of the hotel."""
    problems = []
    if not _CODE.fullmatch(hotel.code):
        problems.append(f"code {hotel.code!r} must be 1 to 16 visible ASCII characters")
    if not 1 <= len(hotel.name.strip()) <= 128 or not hotel.name.isprintable():
        problems.append("name must be 1 to 128 printable characters")
    if not _LANGUAGE.fullmatch(hotel.language):
        problems.append(f"language {hotel.language!r} must be two lower-case letters, like it")
    if not _REGION.fullmatch(hotel.region):
        problems.append(f"region {hotel.region!r} must be two upper-case letters, like IT")
    hint = None
    try:
        ZoneInfo(hotel.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        problems.append(f"time zone {hotel.time_zone!r} is not known")
        hint = nearest(hotel.time_zone, available_timezones())
    if problems:
        raise Unusable("; ".join(problems), hint=hint)


async def add_hotel(store: Store, hotel: NewHotel) -> int:
    """Add a hotel; its id. Raises: Unusable."""
    check_hotel(hotel)
    return await store.run(partial(_add_hotel, hotel=hotel))


async def _add_hotel(tx: Tx, hotel: NewHotel) -> int:
    row = await tx.fetch_one(
        "add_hotel",
        code=hotel.code,
        name=hotel.name.strip(),
        time_zone=hotel.time_zone,
        language=hotel.language,
        region=hotel.region,
        report_email=hotel.report_email,
        now=tx.now_us,
    )
    if row is None:
        raise Unusable(f"hotel {hotel.code!r} exists already")
    await tx.execute("bump_directory")
    return int(row["id"])


async def list_hotels(store: Store) -> list[dict[str, object]]:
    """All hotels with the number of their users and sources."""
    rows = await store.read(lambda tx: tx.fetch_all("list_hotels"))
    return [dict(row) for row in rows]


async def set_hotel_disabled(store: Store, code: str, disabled: bool) -> None:
    """Disable a hotel (its sources and users find it no more) or enable it. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        await require_hotel(tx, code)
        at = tx.now_us if disabled else None
        await tx.execute("set_hotel_disabled", code=code, disabled_at=at, now=tx.now_us)
        await tx.execute("bump_directory")

    await store.run(unit)


async def require_hotel(tx: Tx, code: str) -> int:
    """The id of a hotel, disabled ones too. Raises: Unusable naming the nearest code."""
    row = await tx.fetch_one("get_hotel", code=code)
    if row is None:
        known = [r["code"] for r in await tx.fetch_all("list_hotels")]
        raise Unusable(f"there is no hotel {code!r}", hint=nearest(code, known))
    return int(row["id"])


def nearest(name: str, known: set[str] | list[str]) -> str | None:
    """The hint for a name that is not known."""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else None
