"""Management of the sources of guest requests; their secrets are sealed."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from alpinehub.hotels import Unusable, nearest, require_hotel
from cordata import Context, Row, Store, Tx

#: The vault's context of source secrets.
SOURCE_SECRET = "alpinehub source"
#: A header cannot carry more than visible ASCII without doubt about its encoding.
_SECRET = re.compile(r"[\x21-\x7e]{1,256}")
#: Kinds of webhooks.
KINDS = ("generic", "wix", "google", "form")
#: Kinds with the secret in the path, after the hotel; the log shows the path without it.
_IN_PATH = ("wix", "form")
#: Options of a form: their allowed values, and what they are.
_OPTION = {
    "honeypot": (re.compile(r"[\x21-\x7e]{0,64}"), "the name of a field"),
    "redirect": (re.compile(r"(https?://[\x21-\x7e]{1,2000})?"), "an http or https URL"),
    "proof_of_work": (re.compile(r"([1-9]|1[0-9]|2[0-4])?"), "a number of bits from 1 to 24"),
}
OPTIONS = tuple(_OPTION)
_PATH_SECRET = re.compile(r"(?=.*[0-9])[A-Za-z0-9_-]{20,128}")


async def add_source(
    ctx: Context,
    hotel: str,
    kind: str,
    name: str,
    secret: str,
    options: Mapping[str, str] | None = None,
) -> int:
    """Add a source. Returns its id. Raises: Unusable; ConfigError without a master key."""
    if kind not in KINDS:
        raise Unusable(f"there is no kind {kind!r}", hint=f"one of {', '.join(KINDS)}")
    if not 1 <= len(name) <= 64 or not name.isprintable():
        raise Unusable("a source's name has 1 to 64 printable characters")
    check_secret(kind, secret)
    written = write_options(kind, options or {}, None)
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
            options=written,
            now=tx.now_us,
        )
        if row is None:
            raise Unusable("this source was added by another command", hint="see `source list`")
        await tx.execute("bump_directory")
        return int(row["id"])

    return await ctx.store.run(unit)


async def list_sources(store: Store) -> list[dict[str, object]]:
    """All sources, without their secrets."""
    rows = await store.read(lambda tx: tx.fetch_all("list_sources"))
    return [dict(row) for row in rows]


async def hotels_with_key(ctx: Context, hotel: str, key: str) -> list[str]:
    """The other hotels whose source of kind google has this key: leads must name their hotel."""
    fingerprint = ctx.vault.fingerprint(key.encode(), context=SOURCE_SECRET)
    rows = await ctx.store.read(
        lambda tx: tx.fetch_all("google_hotels", fingerprint=fingerprint, hotel=hotel)
    )
    return [row["hotel"] for row in rows]


class Closed(NamedTuple):
    """The sources whose secret this process cannot unseal."""

    #: Each as `hotel/name`.
    names: list[str]
    #: Whether no secret of any source can be unsealed.
    is_all: bool


async def sealed_elsewhere(ctx: Context) -> Closed:
    """Sources whose secret was sealed with another master key; all if there is no key."""
    rows = await ctx.store.read(lambda tx: tx.fetch_all("sealed_secrets"))
    closed = [
        f"{row['hotel']}/{row['name']}"
        for row in rows
        if not ctx.vault.can_open(row["secret"], context=SOURCE_SECRET)
    ]
    return Closed(closed, is_all=len(closed) == len(rows))


def describe_closed(closed: Sequence[str]) -> str:
    """A message about the sources of `sealed_elsewhere`, with what to do."""
    names = ", ".join(closed[:10]) + (", ..." if len(closed) > 10 else "")
    count = f"{len(closed)} source{'' if len(closed) == 1 else 's'}"
    return (
        f"the secrets of {count} do not open with this host's master-key: {names}; "
        "restore the credential master-key, or run `alpinehub source rotate` for each"
    )


async def set_secret(
    ctx: Context, hotel: str, name: str, secret: str, *, keep_s: int = 0
) -> dict[str, object]:
    """Give a source another secret; the old one is accepted for another `keep_s` seconds, with 0 it
    ends within a second. Returns the source. Raises: Unusable.
    """
    check_secret("", secret)
    sealed, fingerprint = _seal(ctx, secret)

    async def unit(tx: Tx) -> dict[str, object]:
        source = await require_source(tx, hotel, name)
        check_secret(source["kind"], secret)
        await _require_new_secret(
            tx, await require_hotel(tx, hotel), fingerprint, source_id=source["id"]
        )
        until = tx.now_us + keep_s * 1_000_000 if keep_s else None
        await tx.execute(
            "set_secret",
            id=source["id"],
            secret=sealed,
            fingerprint=fingerprint,
            now=tx.now_us,
            until=until,
        )
        await tx.execute("bump_directory")
        return {**described(source), "before_until": until}

    return await ctx.store.run(unit)


async def show_source(store: Store, hotel: str, name: str) -> dict[str, object]:
    """A source with its mapping, its options and the forms seen of it. Raises: Unusable."""

    async def unit(tx: Tx) -> dict[str, object]:
        source = await require_source(tx, hotel, name)
        forms = await tx.fetch_all("source_forms", source_id=source["id"])
        return {
            **described(source),
            "mapping": json.loads(source["mapping"] or "null"),
            "forms": [{**dict(form), "fields": json.loads(form["fields"])} for form in forms],
        }

    return await store.read(unit)


async def set_options(store: Store, hotel: str, name: str, options: Mapping[str, str]) -> None:
    """Change options of a source; "" is the default. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        source_id = (await require_source(tx, hotel, name))["id"]
        # Locked, because options that are not changed are written again.
        source = await tx.fetch_one("source_options", id=source_id, lock=True)
        assert source is not None  # sources are never deleted
        written = write_options(source["kind"], options, source["options"])
        await tx.execute("set_options", id=source_id, options=written)
        await tx.execute("bump_directory")

    await store.run(unit)


async def set_source_disabled(store: Store, hotel: str, name: str, disabled: bool) -> None:
    """Disable a source or enable it. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        source_id = (await require_source(tx, hotel, name))["id"]
        at = tx.now_us if disabled else None
        await tx.execute("set_source_disabled", id=source_id, disabled_at=at)
        await tx.execute("bump_directory")

    await store.run(unit)


async def require_source(tx: Tx, hotel: str, name: str) -> Row:
    """A source of a hotel, also a disabled one. Raises: Unusable with the nearest name."""
    await require_hotel(tx, hotel)
    row = await tx.fetch_one("get_source", hotel=hotel, name=name)
    if row is None:
        known = [r["name"] for r in await tx.fetch_all("list_sources") if r["hotel"] == hotel]
        raise Unusable(
            f"hotel {hotel!r} has no source {name!r}",
            hint=nearest(name, known) or "see `alpinehub source list`",
        )
    return row


async def check_filter(tx: Tx, *, hotel: str | None, source: str | None) -> None:
    """Check what a list is restricted to; None: not restricted. Raises: Unusable: there is none."""
    if hotel is not None and source is not None:
        await require_source(tx, hotel, source)
    elif hotel is not None:
        await require_hotel(tx, hotel)
    elif source is not None:
        known = [row["name"] for row in await tx.fetch_all("list_sources")]
        if source not in known:
            hint = nearest(source, known) or "see `alpinehub source list`"
            raise Unusable(f"no hotel has a source {source!r}", hint=hint)


def described(source: Row) -> dict[str, object]:
    """A row of `get_source` without the sealed secrets."""
    shown = ("id", "hotel", "name", "kind", "created_at", "changed_at", "disabled_at")
    return {
        **{name: source[name] for name in shown},
        "before_until": source["before_until"],
        "options": json.loads(source["options"] or "{}"),
    }


async def _require_new_secret(
    tx: Tx, hotel_id: int, fingerprint: bytes, *, source_id: int = 0
) -> None:
    """Raises: Unusable if another source of the hotel has this secret."""
    other = await tx.fetch_one(
        "find_source_by_fingerprint",
        id=source_id,
        hotel_id=hotel_id,
        fingerprint=fingerprint,
        now=tx.now_us,
    )
    if other is not None:
        raise Unusable(f"source {other['name']!r} of the hotel has this secret")


def write_options(kind: str, options: Mapping[str, str], before: str | None) -> str | None:
    """The JSON of `source.options` with some changed; None if all are the defaults.

    Options that this version does not know stay. Raises: Unusable.
    """
    if options and kind != "form":
        raise Unusable(f"a source of kind {kind} has no options", hint="only kind form has options")
    merged = json.loads(before or "{}")
    for name, value in options.items():
        if name not in OPTIONS:
            raise Unusable(
                f"there is no option {name!r}",
                hint=nearest(name, list(OPTIONS)) or f"one of {', '.join(OPTIONS)}",
            )
        allowed, what = _OPTION[name]
        if not allowed.fullmatch(value):
            raise Unusable(
                f"option {name}: {value!r} is not {what}", hint="an empty one removes it"
            )
        merged[name] = value
    return json.dumps(merged) if merged else None


def new_secret() -> str:
    """A generated secret, for a source of any kind or an account: 112 bits."""
    return f"{secrets.randbelow(10)}{secrets.token_hex(14)}"


def path_of(kind: str, hotel: str, secret: str) -> str:
    """The path that a source posts to."""
    if kind in _IN_PATH:
        return f"/api/webhook/{kind}/{quote(hotel)}/{quote(secret, safe='')}"
    if kind == "google":  # without the hotel it is taken where no other has the key
        return f"/api/webhook/google/{quote(hotel)}"
    return f"/api/webhook/{kind}"


def check_secret(kind: str, secret: str) -> None:
    """Raises: Unusable for one that a source of this kind cannot have."""
    if kind in _IN_PATH and not _PATH_SECRET.fullmatch(secret):
        raise Unusable(
            "a secret in a path has 20 to 128 letters, digits, - and _, a digit among them",
            hint="leave out --secret-stdin to have one generated",
        )
    if not _SECRET.fullmatch(secret):
        raise Unusable("a secret has 1 to 256 visible ASCII characters")


def _seal(ctx: Context, secret: str) -> tuple[bytes, bytes]:
    plain = secret.encode()
    sealed = ctx.vault.seal(plain, context=SOURCE_SECRET)
    return sealed, ctx.vault.fingerprint(plain, context=SOURCE_SECRET)
