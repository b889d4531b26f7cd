"""Finds the source of a request: by its secret, or by an HMAC of the body made with the secret.

X-Webhook-Secret is looked up by its keyed hash, which costs the same for any number of sources and
whose timing reveals nothing about the stored secrets. X-Signature-256 does not name a secret, so
the source is that of `?source=ID` (see `alpinehub source list`). Without that, all sources are
tried if that takes only microseconds, else those of the body's hotel_code (then a body that is not
JSON, or of another hotel, is answered with 401 instead of 400 or 404). If a request has both
headers, both must be correct. Every failure is the same 401, whether the hotel exists or not.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Sequence
from typing import TypeGuard
from urllib.parse import parse_qs

from alpinehub.directory import Snapshot
from alpinehub.models import OldSecret, Source
from alpinehub.sources import SOURCE_SECRET
from alpinehub.webhooks.endpoint import WebhookError
from cordata import Context, LogThrottle, PermanentError, fields

#: Bytes hashed for one signature at most (a millisecond), and sources tried without being named.
_MAX_HASHED_BYTES, _MAX_TRIED = 1 << 20, 256
_MAX_UNSEALED = 4096
_unsealed: dict[bytes, bytes] = {}
#: Of lines about a source that still uses its old secret; key: its id and that secret, sealed.
_old_secret_throttle = LogThrottle(again_s=3600.0)

_log = logging.getLogger("alpinehub.webhook")


def unauthorized(
    message: str = "A valid X-Webhook-Secret or X-Signature-256 is required.",
) -> WebhookError:
    """The same 401 for every failed authentication."""
    return WebhookError(401, "unauthorized", message, headers=((b"www-authenticate", b"Webhook"),))


def by_secret(ctx: Context, snapshot: Snapshot, kind: str, secret: bytes) -> tuple[Source, ...]:
    """The sources that have this secret, one per hotel at most."""
    if not snapshot.sources:
        return ()
    fingerprint = ctx.vault.fingerprint(secret, context=SOURCE_SECRET)
    found = snapshot.sources_by_fingerprint.get(fingerprint, ())
    return tuple(s for s in found if s.kind == kind and _fits(ctx, s, fingerprint))


def one_by_secret(
    ctx: Context, snapshot: Snapshot, kind: str, secret: bytes, hotel: str | None
) -> Source:
    """The source of a hotel that has this secret; without a hotel the only one that has it.

    Raises: WebhookError 401, the same for an unknown hotel and for another hotel's secret.
    """
    found = by_secret(ctx, snapshot, kind, secret)
    matching = [source for source in found if hotel is None or source.hotel.code == hotel]
    if len(matching) != 1:
        raise unauthorized("A valid secret is required.")
    return matching[0]


def _fits(ctx: Context, source: Source, fingerprint: bytes) -> bool:
    """Whether this fingerprint is that of the source's secret, or of its old one if still valid."""
    if source.fingerprint == fingerprint:
        return True
    if not _is_valid(source.before, ctx):
        return False
    _note_old(source)
    return True


def _is_valid(before: OldSecret | None, ctx: Context) -> TypeGuard[OldSecret]:
    return before is not None and ctx.now_us() < before.until


def _seals(ctx: Context, source: Source) -> list[bytes]:
    """The sealed secrets that are valid: the source's, and after a rotation the old one."""
    before = source.before
    return [source.sealed, before.sealed] if _is_valid(before, ctx) else [source.sealed]


def _note_old(source: Source) -> None:
    """Warn, once an hour, that a sender still uses the old secret of the source."""
    assert source.before is not None
    if _old_secret_throttle.is_due(f"{source.id} {source.before.sealed.hex()}"):
        _log.warning(
            "source %s of hotel %s still uses its secret from before the rotation",
            source.name,
            source.hotel.code,
            extra=fields(source=source.id),
        )


def by_signature(
    ctx: Context, sources: Sequence[Source], signature: bytes, body: bytes
) -> tuple[Source, ...]:
    """Those of the sources whose secret made the signature. Raises: WebhookError 401."""
    given = signature.strip().lower().removeprefix(b"sha256=")
    found = []
    for source in sources:
        for sealed in _seals(ctx, source):
            secret = _unseal(ctx, sealed)
            if secret is None:
                continue
            expected = hmac.digest(secret, body, "sha256").hex()
            if hmac.compare_digest(expected.encode(), given):
                found.append(source)
                if sealed is not source.sealed:
                    _note_old(source)
                break
    if not sources:  # no faster for a hotel that does not exist
        hmac.digest(b"nobody", body, "sha256")
    if not found:
        raise unauthorized()
    return tuple(found)


def candidates(
    snapshot: Snapshot, kind: str, query: bytes, body: bytes, hotel_code: Callable[[], str]
) -> Sequence[Source]:
    """The sources whose signature a body may have. `hotel_code` reads the code from the body."""
    named = _named_source(snapshot, query)
    if named is not None:
        found: Sequence[Source] = named
    elif len(snapshot.sources) <= min(_MAX_TRIED, _MAX_HASHED_BYTES // (len(body) + 1)):
        found = tuple(snapshot.sources.values())
    else:
        found = snapshot.sources_by_hotel.get(hotel_code(), ())
    return [source for source in found if source.kind == kind]


def _named_source(snapshot: Snapshot, query: bytes) -> tuple[Source, ...] | None:
    """The source of `?source=ID`, () if it does not exist; None: the query names no source."""
    try:
        names = parse_qs(query.decode("latin-1"), max_num_fields=20).get("source")
    except ValueError:
        return ()
    if not names:
        return None
    known = names[0].isascii() and names[0].isdecimal() and len(names[0]) < 19
    source = snapshot.sources.get(int(names[0])) if known else None
    return () if source is None else (source,)


def _unseal(ctx: Context, sealed: bytes) -> bytes | None:
    """A secret, unsealed once and cached by its sealed bytes.

    None: it was sealed with another master key (the primary logs that at its start). Then this
    source cannot be authenticated, but others can.
    """
    secret = _unsealed.get(sealed)
    if secret is None:
        try:
            secret = ctx.vault.open(sealed, context=SOURCE_SECRET)
        except PermanentError:
            return None
        if len(_unsealed) >= _MAX_UNSEALED:
            _unsealed.clear()
        _unsealed[sealed] = secret
    return secret
