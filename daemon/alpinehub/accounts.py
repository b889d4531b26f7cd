"""Management of the logins of hotel software. Passwords are stored as scrypt hashes."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Sequence

from alpinehub.hotels import Unusable, nearest, require_hotel
from alpinehub.models import zone_of
from alpinehub.passwords import hash_password, hash_password_like
from cordata import Store, Tx, from_us

#: HTTP Basic separates name and password by a colon.
_NAME = re.compile(r"[\x21-\x39\x3b-\x7e]{1,64}")
_MAX_PASSWORD = 256


async def add_account(
    store: Store, name: str, password: str, hotels: Sequence[str], *, from_now: bool = False
) -> int:
    """Add a login for some hotels. Returns its id. `from_now`: see `grant`. Raises: Unusable."""
    if not _NAME.fullmatch(name):
        raise Unusable(f"account {name!r} must be 1 to 64 visible ASCII characters without a colon")
    stored = await _hash(password)

    async with store.transaction() as tx:
        row = await tx.fetch_one("add_account", name=name, password=stored, now=tx.now_us)
        if row is None:
            raise Unusable(f"account {name!r} exists already", hint="`alpinehub account rotate`?")
        account_id = int(row["id"])
        for code in hotels:
            await _grant(tx, account_id, await require_hotel(tx, code), from_now=from_now)
        await tx.execute("bump_directory")
        return account_id


async def list_accounts(store: Store) -> list[dict[str, object]]:
    """All logins with the codes of their hotels."""

    async def unit(tx: Tx) -> list[dict[str, object]]:
        hotels: defaultdict[int, list[str]] = defaultdict(list)
        for row in await tx.fetch_all("list_account_hotels"):
            hotels[row["account_id"]].append(row["code"])
        return [
            {**row, "hotels": " ".join(hotels[row["id"]]) or None}
            for row in await tx.fetch_all("list_accounts")
        ]

    return await store.read(unit)


async def set_password(store: Store, name: str, password: str, *, keep_s: int = 0) -> None:
    """Give an account another password; the old one is accepted for another `keep_s` seconds, with
    0 it ends within a second. Raises: Unusable.
    """
    before = (
        await store.read(lambda tx: tx.fetch_one("get_password", name=name)) if keep_s else None
    )
    # With the salt of the old one: a wrong password costs one computation instead of two.
    stored = await _hash(password, like=before["password"] if before is not None else None)

    async def unit(tx: Tx) -> None:
        await require_account(tx, name)
        until = tx.now_us + keep_s * 1_000_000 if keep_s else None
        await tx.execute("set_password", name=name, password=stored, now=tx.now_us, until=until)
        await tx.execute("bump_directory")

    await store.run(unit)


async def set_account_disabled(store: Store, name: str, disabled: bool) -> None:
    """Disable or enable a login; requests that arrived meanwhile are delivered when it is enabled,
    if they are still stored. Raises: Unusable.
    """

    async def unit(tx: Tx) -> None:
        account_id = await require_account(tx, name)
        at = tx.now_us if disabled else None
        await tx.execute("set_account_disabled", name=name, disabled_at=at, now=tx.now_us)
        if disabled:
            await tx.execute("contact_forget_networks", account_id=account_id, hotel_id=None)
        await tx.execute("bump_directory")

    await store.run(unit)


async def grant(store: Store, name: str, hotel: str, *, from_now: bool = False) -> None:
    """Let an account read one more hotel: requests that arrive, and open ones (not acknowledged,
    erased, withdrawn or cancelled, and the stay not over). `from_now`: only requests that arrive,
    also in a poll with Start. Raises: Unusable.
    """

    async def find(tx: Tx) -> tuple[int, int]:
        return await require_account(tx, name), await require_hotel(tx, hotel)

    account_id, hotel_id = await store.read(find)
    async with store.transaction() as tx:
        await _grant(tx, account_id, hotel_id, from_now=from_now)
        await tx.execute("bump_directory")


async def revoke(store: Store, name: str, hotel: str) -> None:
    """Stop an account from reading a hotel. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        account_id, hotel_id = await require_account(tx, name), await require_hotel(tx, hotel)
        if not await tx.execute("revoke_hotel", account_id=account_id, hotel_id=hotel_id):
            raise Unusable(f"account {name!r} does not read hotel {hotel!r}")
        await tx.execute("contact_forget_networks", account_id=account_id, hotel_id=hotel_id)
        await tx.execute("bump_directory")

    await store.run(unit)


async def _grant(tx: Tx, account_id: int, hotel_id: int, *, from_now: bool) -> None:
    """Runs in a `transaction()` after a write: on PostgreSQL each statement sees what is committed
    when it begins, so also a version whose lock it waited for. A unit of work would not.
    """
    ids = {"account_id": account_id, "hotel_id": hotel_id}
    # Until the end of the unit the hotel gets no other source: adding one locks this row, too, by
    # its foreign key.
    hotel = await tx.fetch_one("hotel_zone", hotel_id=hotel_id, lock=True)
    assert hotel is not None  # hotels are never deleted
    await tx.execute("lock_sources", hotel_id=hotel_id)
    from_at = tx.now_us if from_now else None
    if await tx.execute("grant_hotel", **ids, from_at=from_at) and not from_now:
        today = from_us(tx.now_us).astimezone(zone_of(hotel["time_zone"])).date()
        await tx.execute("deliver_open", **ids, today=today.isoformat())


async def require_account(tx: Tx, name: str) -> int:
    """The id of a login, also of a disabled one. Raises: Unusable with the nearest name."""
    row = await tx.fetch_one("get_account", name=name)
    if row is None:
        known = [r["name"] for r in await tx.fetch_all("list_accounts")]
        raise Unusable(
            f"there is no account {name!r}",
            hint=nearest(name, known) or "see `alpinehub account list`",
        )
    return int(row["id"])


async def _hash(password: str, *, like: str | None = None) -> str:
    if not 1 <= len(password) <= _MAX_PASSWORD:
        raise Unusable(f"a password has 1 to {_MAX_PASSWORD} characters")
    if like is not None:
        return await asyncio.to_thread(hash_password_like, password, like)
    return await asyncio.to_thread(hash_password, password)
