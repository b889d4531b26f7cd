"""Which source a request is from: by its secret, or by an HMAC of the body made with it.

X-Webhook-Secret is looked up by a keyed hash of it, which costs the same however many sources
there are, and whose timing tells nothing about the secrets stored. X-Signature-256 does not name a
secret, so the source is the one of `?source=ID` (as `alpinehub source list` shows it); without that
all are tried, as long as that is a matter of microseconds, else those of its hotel_code (then
a body that is no JSON, or of another hotel, gets a 401 instead of its 400 or 404). Whoever presents
both must be right in both. Every failure is the same 401, whether the hotel exists or not.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeGuard
from urllib.parse import parse_qs

from alpinehub.directory import Snapshot
from alpinehub.models import Before, Source
from alpinehub.sources import SOURCE_SECRET
from alpinehub.webhooks.endpoint import HttpError
from cordata import Context, PermanentError, fields

#: No secret is longer.
_MAX_SECRET_BYTES = 512
#: Bytes hashed for one signature at most (a millisecond), and sources tried without being named.
_MAX_HASHED_BYTES, _MAX_TRIED = 1 << 20, 256
_MAX_UNSEALED = 4096
_unsealed: dict[bytes, bytes] = {}
#: Seconds between two lines about a source that still uses its old secret.
_NOTE_AGAIN_S = 3600.0
#: When to say it again, by source and rotation.
_noted: dict[tuple[int, bytes], float] = {}

_log = logging.getLogger("alpinehub.webhook")


def unauthorized(
    message: str = "A valid X-Webhook-Secret or X-Signature-256 is required.",
) -> HttpError:
    """The one answer to a client that cannot prove to be a source."""
    return HttpError(401, "unauthorized", message, headers=((b"www-authenticate", b"Webhook"),))


def by_secret(ctx: Context, snapshot: Snapshot, kind: str, secret: bytes) -> tuple[Source, ...]:
    """The sources that have this secret, one per hotel at most. Raises: HttpError 401."""
    if not snapshot.sources or len(secret) > _MAX_SECRET_BYTES:
        raise unauthorized()
    mark = ctx.vault.fingerprint(secret, context=SOURCE_SECRET)
    found = snapshot.sources_by_fingerprint.get(mark, ())
    sources = tuple(s for s in found if s.kind == kind and _fits(ctx, s, mark))
    if not sources:
        raise unauthorized()
    return sources


def one_by_secret(
    ctx: Context, snapshot: Snapshot, kind: str, secret: bytes, hotel: str | None
) -> Source:
    """The source of a hotel that has this secret; without a hotel the only one that has it.

    Another hotel's secret, a hotel that does not exist: all one answer. Raises: HttpError 401.
    """
    try:
        found = by_secret(ctx, snapshot, kind, secret)
    except HttpError:
        found = ()
    ours = [source for source in found if hotel is None or source.hotel.code == hotel]
    if len(ours) != 1 or not _proves(ctx, ours[0], secret):
        raise unauthorized("A valid secret is required.")
    return ours[0]


def _proves(ctx: Context, source: Source, secret: bytes) -> bool:
    """Whether it is the secret, compared in constant time: the look-up was by a hash of it."""
    known = [_unseal(ctx, sealed) for sealed in _seals(ctx, source)]
    return any([hmac.compare_digest(one, secret) for one in known if one is not None])


def _fits(ctx: Context, source: Source, mark: bytes) -> bool:
    """Whether a source is still known by this mark of a secret."""
    if source.fingerprint == mark:
        return True
    if not _taken(source.before, ctx):
        return False
    _note_old(source)
    return True


def _taken(before: Before | None, ctx: Context) -> TypeGuard[Before]:
    return before is not None and ctx.now_us() < before.until


def _seals(ctx: Context, source: Source) -> list[bytes]:
    """The sealed secrets that are taken: the source's, and the one before it for a while."""
    before = source.before
    return [source.sealed, before.sealed] if _taken(before, ctx) else [source.sealed]


def _note_old(source: Source) -> None:
    """Say, once an hour, who has not changed to the new secret yet."""
    assert source.before is not None
    now, rotation = monotonic(), (source.id, source.before.sealed)
    if now >= _noted.get(rotation, 0.0):
        _noted[rotation] = now + _NOTE_AGAIN_S
        _log.warning(
            "source %s of hotel %s is still sent with the secret before its rotation",
            source.name,
            source.hotel.code,
            extra=fields(source=source.id),
        )


def by_signature(
    ctx: Context, sources: Sequence[Source], signature: bytes, body: bytes
) -> tuple[Source, ...]:
    """Those of the sources whose secret made the signature. Raises: HttpError 401."""
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
    """The sources whose signature a body may bear. `hotel_code` reads it from the body."""
    named = _named_source(snapshot, query)
    if named is not None:
        found: Sequence[Source] = named
    elif len(snapshot.sources) <= min(_MAX_TRIED, _MAX_HASHED_BYTES // (len(body) + 1)):
        found = tuple(snapshot.sources.values())
    else:
        found = snapshot.sources_by_hotel.get(hotel_code(), ())
    return [source for source in found if source.kind == kind]


def _named_source(snapshot: Snapshot, query: bytes) -> tuple[Source, ...] | None:
    """The source of `?source=ID`; none when it does not exist. None: not named."""
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
    """A secret; opened once, for the sealed bytes change with it.

    None: another master key sealed it (the primary says so at its start). Nobody can be this
    source then, by neither header, but the others can be who they are.
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
