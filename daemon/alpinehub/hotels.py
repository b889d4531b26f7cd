"""Management of hotels. A change is effective in all workers within a second."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from zoneinfo import available_timezones

from msgspec import Struct

from alpinehub.models import FEATURES, is_time_zone
from cordata import CordataError, Row, Store, Tx

_CODE = re.compile(r"[\x21-\x7e]{1,16}")
_LANGUAGE = re.compile(r"[a-z]{2}")
#: ASCII before the @: a server without SMTPUTF8 would refuse the mail, also for other recipients.
_ADDRESS = re.compile(r"[^\s@,<>\x7f-\U0010ffff]+@[^\s@,<>]+")
_NO_REGION = "region {!r} must be a country by its two upper-case letters, like IT"


class Unusable(CordataError):
    """The action is not possible; nothing was changed."""

    code = "unusable"


class NewHotel(Struct, frozen=True, kw_only=True):
    """A hotel to be added."""

    #: As AlpineBits knows it: 1 to 16 visible ASCII characters.
    code: str
    #: 1 to 128 characters.
    name: str
    #: IANA name, for the hotel's local day.
    time_zone: str = "Europe/Rome"
    #: ISO 639-1.
    language: str = "de"
    #: ISO 3166: country of telephone numbers without a country code.
    region: str = "IT"
    #: Recipients of the daily report, separated by commas.
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
    if not _is_region(hotel.region):
        problems.append(_NO_REGION.format(hotel.region))
    if not _are_addresses(hotel.report_email):
        problems.append("report-email must be e-mail addresses, separated by commas")
    hint = None
    if not is_time_zone(hotel.time_zone):
        problems.append(f"time zone {hotel.time_zone!r} is not known: give one like Europe/Rome")
        hint = nearest(hotel.time_zone, available_timezones())
    if problems:
        raise Unusable("; ".join(problems), hint=hint)


async def add_hotel(store: Store, hotel: NewHotel) -> int:
    """Add a hotel. Returns its id. Raises: Unusable."""
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
        raise Unusable(
            f"hotel {hotel.code!r} exists already", hint=f"`alpinehub hotel set {hotel.code}`"
        )
    await tx.execute("bump_directory")
    return int(row["id"])


async def list_hotels(store: Store) -> list[dict[str, object]]:
    """All hotels with the number of their accounts and sources."""
    rows = await store.read(lambda tx: tx.fetch_all("list_hotels"))
    return [dict(row) for row in rows]


#: Settings with a column of their own.
_COLUMNS = ("name", "time_zone", "language", "region", "report_email")


@dataclass(frozen=True, slots=True, kw_only=True)
class HotelChange:
    """Changes of a hotel."""

    #: Some of name, time_zone, language, region, report_email ("": none).
    columns: Mapping[str, str]
    #: Some of stale_after_h, alert_email, report_language; None: as for all hotels.
    settings: Mapping[str, int | str | None]
    #: Features to enable, and to disable.
    on: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    #: Name of a retention setting -> days; None: as for all hotels.
    retention: Mapping[str, int | None] = field(default_factory=dict)


async def show_hotel(store: Store, code: str) -> dict[str, object]:
    """A hotel with its settings. Raises: Unusable."""

    async def look(tx: Tx) -> Row:
        await require_hotel(tx, code)
        row = await tx.fetch_one("show_hotel", code=code)
        assert row is not None  # hotels are never deleted
        return row

    row = await store.read(look)
    settings = _settings(row)
    off = sorted(_off(settings))
    settings.pop("off", None)
    on = [feature for feature in FEATURES if feature not in off]
    return {**row, "settings": settings, "features": on, "features_off": off}


async def change_hotel(store: Store, code: str, change: HotelChange) -> None:
    """Change a hotel; other settings stay as they are. Raises: Unusable."""
    if not _are_addresses(change.settings.get("alert_email")):
        raise Unusable("alert-email must be e-mail addresses, separated by commas")
    language = change.settings.get("report_language")
    if language and not _LANGUAGE.fullmatch(str(language)):
        raise Unusable(f"report language {language!r} must be two lower-case letters, like it")

    async def unit(tx: Tx) -> None:
        await require_hotel(tx, code)
        # Locked, because columns that are not changed are written again.
        row = await tx.fetch_one("show_hotel", code=code, lock=True)
        assert row is not None  # hotels are never deleted
        columns = {name: change.columns.get(name, row[name]) for name in _COLUMNS}
        columns["name"] = columns["name"].strip()
        columns["report_email"] = columns["report_email"] or None
        check_hotel(NewHotel(code=code, **columns))
        settings = _changed(_settings(row), change)
        await tx.execute("change_hotel", id=row["id"], settings=settings, **columns)
        if columns["region"] != row["region"]:  # numbers without a country code change
            await tx.execute("customer_mark_hotel", hotel_id=row["id"])
        await tx.execute("bump_directory")

    await store.run(unit)


def _changed(settings: dict[str, object], change: HotelChange) -> str | None:
    """The JSON of `hotel.settings`. Settings that this version does not know stay."""
    taken = {*_off(settings), *change.off} - change.on
    before = settings.get("retention")
    days = {**(before if isinstance(before, dict) else {}), **change.retention}
    days = {name: value for name, value in days.items() if value is not None}
    merged = {**settings, **change.settings, "off": sorted(taken), "retention": days}
    kept = {name: value for name, value in merged.items() if value not in (None, "", [], {})}
    return json.dumps(kept) if kept else None


def _off(settings: Mapping[str, object]) -> list[str]:
    """The disabled features, also those of a newer version."""
    off = settings.get("off")
    return [str(one) for one in off] if isinstance(off, list) else []


def _settings(row: Row) -> dict[str, object]:
    try:
        settings = json.loads(row["settings"] or "{}")
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise Unusable(
            f"the settings of hotel {row['code']} cannot be read",
            hint="hotel.settings must be a JSON object, or NULL",
        )
    return settings


async def set_hotel_disabled(store: Store, code: str, disabled: bool) -> None:
    """Disable a hotel (requests of its sources and accounts are refused) or enable it.

    Raises: Unusable.
    """

    async def unit(tx: Tx) -> None:
        await require_hotel(tx, code)
        at = tx.now_us if disabled else None
        await tx.execute("set_hotel_disabled", code=code, disabled_at=at, now=tx.now_us)
        await tx.execute("bump_directory")

    await store.run(unit)


async def require_hotel(tx: Tx, code: str) -> int:
    """The id of a hotel, also of a disabled one. Raises: Unusable with the nearest code."""
    row = await tx.fetch_one("get_hotel", code=code)
    if row is None:
        known = [r["code"] for r in await tx.fetch_all("list_hotels")]
        raise Unusable(
            f"there is no hotel {code!r}", hint=nearest(code, known) or "see `alpinehub hotel list`"
        )
    return int(row["id"])


def addresses_of(*texts: str | None) -> list[str]:
    """The e-mail addresses in texts, separated by commas; each once, invalid ones left out."""
    found = [one.strip() for text in texts for one in (text or "").split(",")]
    return [one for one in dict.fromkeys(found) if _ADDRESS.fullmatch(one)]


def _are_addresses(text: object) -> bool:
    """Whether a text is empty, or e-mail addresses separated by commas."""
    return not text or all(_ADDRESS.fullmatch(one.strip()) for one in str(text).split(","))


def _is_region(name: str) -> bool:
    """Whether numbers without a country code can be read as those of this country."""
    from phonenumbers import SUPPORTED_REGIONS  # too large for each command

    return name in SUPPORTED_REGIONS


def nearest(name: str, known: set[str] | list[str]) -> str | None:
    """The hint "did you mean ...?" for an unknown name, or None."""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else None
