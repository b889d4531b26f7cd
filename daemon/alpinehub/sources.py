"""Sources of guest requests as the operator manages them; their secrets are sealed."""

from __future__ import annotations

import re

from alpinehub.hotels import Unusable, nearest, require_hotel
from cordata import Context, CordataError, Store, Tx

#: The vault's context of source secrets.
SOURCE_SECRET = "alpinehub source"
#: A header cannot carry more than visible ASCII without doubt about its encoding.
_SECRET = re.compile(r"[\x21-\x7e]{1,256}")
#: The webhooks there are.
KINDS = ("generic",)


async def add_source(ctx: Context, hotel: str, kind: str, name: str, secret: str) -> int:
    """Add a source to a hotel; its id. Raises: Unusable; ConfigError without a master key."""
    if kind not in KINDS:
        raise Unusable(f"there is no kind {kind!r}", hint=f"one of {', '.join(KINDS)}")
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise Unusable("a source's name has 1 to 64 printable characters")
    sealed, fingerprint = _seal(ctx, secret)

    async def unit(tx: Tx) -> int:
        hotel_id = await require_hotel(tx, hotel)
        if await tx.fetch_one("get_source", hotel=hotel, name=name) is not None:
            raise Unusable(
                f"hotel {hotel!r} has a source {name!r} already", hint="`alpinehub source rotate`?"
            )
        await _require_new_secret(tx, hotel_id, fingerprint)
        row = await tx.fetch_one(
            "add_source",
            hotel_id=hotel_id,
            kind=kind,
            name=name,
            secret=sealed,
            fingerprint=fingerprint,
            now=tx.now_us,
        )
        assert row is not None
        await tx.execute("bump_directory")
        return int(row["id"])

    return await ctx.store.run(unit)


async def list_sources(store: Store) -> list[dict[str, object]]:
    """All sources, without their secrets."""
    rows = await store.read(lambda tx: tx.fetch_all("list_sources"))
    return [dict(row) for row in rows]


async def sealed_elsewhere(ctx: Context) -> list[str]:
    """The sources (`hotel/name`) whose secret this process cannot open: another master key sealed
    it, or there is none.
    """
    rows = await ctx.store.read(lambda tx: tx.fetch_all("sealed_secrets"))
    closed = []
    for row in rows:
        try:
            ctx.vault.open(row["secret"], context=SOURCE_SECRET)
        except CordataError:
            closed.append(f"{row['hotel']}/{row['name']}")
    return closed


async def set_secret(ctx: Context, hotel: str, name: str, secret: str) -> None:
    """Give a source another secret; the old one ends within a second. Raises: Unusable."""
    sealed, fingerprint = _seal(ctx, secret)

    async def unit(tx: Tx) -> None:
        source_id = await _require_source(tx, hotel, name)
        await _require_new_secret(tx, await require_hotel(tx, hotel), fingerprint)
        await tx.execute(
            "set_secret", id=source_id, secret=sealed, fingerprint=fingerprint, now=tx.now_us
        )
        await tx.execute("bump_directory")

    await ctx.store.run(unit)


async def set_source_disabled(store: Store, hotel: str, name: str, disabled: bool) -> None:
    """Disable a source or enable it. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        source_id = await _require_source(tx, hotel, name)
        at = tx.now_us if disabled else None
        await tx.execute("set_source_disabled", id=source_id, disabled_at=at)
        await tx.execute("bump_directory")

    await store.run(unit)


async def _require_source(tx: Tx, hotel: str, name: str) -> int:
    await require_hotel(tx, hotel)
    row = await tx.fetch_one("get_source", hotel=hotel, name=name)
    if row is None:
        known = [r["name"] for r in await tx.fetch_all("list_sources") if r["hotel"] == hotel]
        raise Unusable(f"hotel {hotel!r} has no source {name!r}", hint=nearest(name, known))
    return int(row["id"])


async def _require_new_secret(tx: Tx, hotel_id: int, fingerprint: bytes) -> None:
    """Two sources of one hotel with one secret could not be told apart."""
    other = await tx.fetch_one(
        "find_source_by_fingerprint", hotel_id=hotel_id, fingerprint=fingerprint
    )
    if other is not None:
        raise Unusable(f"source {other['name']!r} of the hotel has this secret")


def _seal(ctx: Context, secret: str) -> tuple[bytes, bytes]:
    if not _SECRET.fullmatch(secret):
        raise Unusable("a secret has 1 to 256 visible ASCII characters")
    plain = secret.encode()
    sealed = ctx.vault.seal(plain, context=SOURCE_SECRET)
    return sealed, ctx.vault.fingerprint(plain, context=SOURCE_SECRET)
