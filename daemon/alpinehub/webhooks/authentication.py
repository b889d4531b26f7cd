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
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs

from alpinehub.directory import Snapshot, Source
from alpinehub.sources import SOURCE_SECRET
from alpinehub.webhooks.problem import Refused
from cordata import Context, PermanentError

#: Longer ones are nobody's.
_MAX_SECRET_BYTES = 512
#: Bytes hashed for one signature at most (a millisecond), and sources tried without being named.
_MAX_HASHED_BYTES, _MAX_TRIED = 1 << 20, 256
_MAX_UNSEALED = 4096
_unsealed: dict[bytes, bytes] = {}


def unauthorized() -> Refused:
    """The one answer to whoever cannot prove to be a source."""
    return Refused(
        401,
        "unauthorized",
        "A valid X-Webhook-Secret or X-Signature-256 is required.",
        headers=((b"www-authenticate", b"Webhook"),),
    )


def by_secret(ctx: Context, snapshot: Snapshot, kind: str, secret: bytes) -> tuple[Source, ...]:
    """The sources that have this secret, one per hotel at most. Raises: Refused 401."""
    if not snapshot.sources or len(secret) > _MAX_SECRET_BYTES:
        raise unauthorized()
    mark = ctx.vault.fingerprint(secret, context=SOURCE_SECRET)
    found = snapshot.sources_by_fingerprint.get(mark, ())
    sources = tuple(source for source in found if source.kind == kind)
    if not sources:
        raise unauthorized()
    return sources


def by_signature(
    ctx: Context, sources: Sequence[Source], signature: bytes, body: bytes
) -> tuple[Source, ...]:
    """Those of the sources whose secret made the signature. Raises: Refused 401."""
    given = signature.strip().lower().removeprefix(b"sha256=")
    found = []
    for source in sources:
        secret = _unseal(ctx, source)
        if secret is None:
            continue
        expected = hmac.digest(secret, body, "sha256").hex()
        if hmac.compare_digest(expected.encode(), given):
            found.append(source)
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


def _unseal(ctx: Context, source: Source) -> bytes | None:
    """The secret of a source; opened once, for the sealed bytes change with the secret.

    None: another master key sealed it (the primary says so at its start). Nobody can be this
    source then, by neither header, but the others can be who they are.
    """
    secret = _unsealed.get(source.sealed)
    if secret is None:
        try:
            secret = ctx.vault.open(source.sealed, context=SOURCE_SECRET)
        except PermanentError:
            return None
        if len(_unsealed) >= _MAX_UNSEALED:
            _unsealed.clear()
        _unsealed[source.sealed] = secret
    return secret
