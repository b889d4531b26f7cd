"""Token buckets of public forms: limit the submissions from one address, and to one form.

Only sources of the kind `form` have them: their secret is in the `action` of a public page. The
secrets of the other kinds are known only to a server of the sender.

    worker ... caches refusals until they end: answers 429 without reading the body or the store
    store .... one row per bucket, for all workers and hosts; a token is taken before a submission
               is interpreted, a proof of work is used in the unit that stores the submission

An address is stored as a keyed hash, and only until its bucket is full again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal
from weakref import WeakKeyDictionary

from msgspec import Struct

from alpinehub.login import is_loopback, network_of
from alpinehub.models import Source
from alpinehub.settings import HubSettings
from cordata import Context, LogThrottle, Store, Tx, fields

#: Refusals that one worker caches.
MAX_REMEMBERED = 10_000
_MINUTE_US, _HOUR_US = 60_000_000, 3_600_000_000
#: The time of a unit may be this much earlier than that of another which changed the bucket before:
#: it waited for the row, or its clock is slow. It must not give back what that one took.
_LATE_US = _MINUTE_US
#: Seconds between two alerts of one process about a bucket.
_ALERT_AGAIN_S = 3600.0
_HASH = "alpinehub form limit"

_log = logging.getLogger("alpinehub.webhook")


class Bucket(Struct, frozen=True):
    """Takes `burst` submissions at once, then one each `interval_us`."""

    kind: Literal["address", "source", "proof"]
    key: bytes
    burst: int
    interval_us: int

    async def take(self, tx: Tx) -> int:
        """Take a token. Returns 0; if there is none, the time of the next (us since the epoch)."""
        allowance = (self.burst - 1) * self.interval_us
        latest = tx.now_us + allowance
        empty = latest + self.interval_us
        taken = await tx.fetch_one(
            "form_limit_take",
            key=self.key,
            full_at=tx.now_us + self.interval_us,
            interval=self.interval_us,
            latest=latest,
            # An hour more: a correction of seconds must not make a proof of work valid again.
            wrong=empty + _HOUR_US,
        )
        if taken is not None:
            return 0
        row = await tx.fetch_one("form_limit_full", key=self.key)
        assert row is not None  # form_limit_take has locked it
        full_at = int(row["full_at"])
        if full_at > empty + _LATE_US and self.kind != "proof":  # a proof's interval never changes
            # More than empty: the rate was raised, or the clock set back, since it was written.
            full_at = empty
            await tx.execute("form_limit_empty", key=self.key, full_at=full_at)
        return full_at - allowance


class LimitReached(Struct, frozen=True):
    """A bucket that was empty."""

    bucket: Bucket
    #: When there is a token again, in microseconds since the epoch.
    until_us: int


def buckets_of(ctx: Context, source: Source, client: str | None) -> Sequence[Bucket]:
    """The buckets of a submission to a form. `client`: its address; None on a unix socket."""
    settings = ctx.settings["alpinehub"]
    assert isinstance(settings, HubSettings)
    found: list[Bucket] = []
    if settings.form_per_minute:
        interval_us = round(_MINUTE_US / settings.form_per_minute)
        key = _key(ctx, f"address {network_of(client or 'unix')}")
        found.append(Bucket("address", key, settings.form_burst, interval_us))
    if settings.form_per_hour:
        interval_us = _HOUR_US // settings.form_per_hour
        key = _key(ctx, f"source {source.id}")
        found.append(Bucket("source", key, settings.form_per_hour, interval_us))
    return found


def bucket_of_proof(ctx: Context, source: Source, proof: str, valid_us: int) -> Bucket:
    """The bucket of a proof of work: it is accepted once while it is valid."""
    return Bucket("proof", _key(ctx, f"proof {source.id} {proof}"), 1, valid_us)


async def take_all(tx: Tx, buckets: Sequence[Bucket]) -> LimitReached | None:
    """Take a token of each. Returns the first empty one, or None."""
    for bucket in buckets:
        if until_us := await bucket.take(tx):
            return LimitReached(bucket, until_us)
    return None


class RefusalCache:
    """Cache of the refusals of one worker, so that a flood does not reach the store."""

    def __init__(self) -> None:
        self._until_us: dict[bytes, int] = {}
        #: Key: that of a bucket.
        self._alert_throttle = LogThrottle(again_s=_ALERT_AGAIN_S)

    def find(self, buckets: Sequence[Bucket], now_us: int) -> LimitReached | None:
        """The first refusal of one of the buckets that has not ended yet, or None. One that lasts
        longer than a bucket can refuse was cached before the rate was raised or the clock set back.
        """
        for bucket in buckets:
            until_us = self._until_us.get(bucket.key, 0)
            if 0 < until_us - now_us <= bucket.interval_us + _LATE_US:
                return LimitReached(bucket, until_us)
        return None

    def remember(self, refusal: LimitReached) -> None:
        """Cache a refusal. If there are too many, all are dropped: these submissions ask the store
        once more.
        """
        if len(self._until_us) >= MAX_REMEMBERED:
            self._until_us.clear()
        self._until_us[refusal.bucket.key] = refusal.until_us

    def alert(
        self, ctx: Context, source: Source, refusal: LimitReached, client: str | None
    ) -> None:
        """Alert, once an hour, if guests are refused: a whole form, or all of a proxy."""
        local = client is None or is_loopback(client)
        if refusal.bucket.kind == "address" and not local:
            return
        if not self._alert_throttle.is_due(refusal.bucket.key.hex()):
            return
        if refusal.bucket.kind == "source":
            ctx.alert(
                f"form-limit:{source.id}",
                f"source {source.name} of hotel {source.hotel.code} gets more than "
                f"{refusal.bucket.burst} submissions an hour: guests are refused (429); robots? "
                "set `[alpinehub] form_per_hour`, or give the form a proof of work: "
                "`alpinehub source set --help`",
                ids=[source.hotel.code],
            )
        else:
            _log.warning(
                "forms are refused (429) because all of them come from %s: if that is a proxy, it "
                "has to set X-Forwarded-For, and [http] trusted_proxies has to name it",
                client or "a unix socket",
                extra=fields(source=source.id),
            )


_refusals: WeakKeyDictionary[Store, RefusalCache] = WeakKeyDictionary()


def refusals_of(ctx: Context) -> RefusalCache:
    """The cached refusals of this process."""
    return _refusals.get(ctx.store) or _refusals.setdefault(ctx.store, RefusalCache())


async def forget(tx: Tx) -> int:
    """Delete the buckets that are full again. Returns how many."""
    return await tx.execute("form_limit_forget", now=tx.now_us)


def _key(ctx: Context, text: str) -> bytes:
    return ctx.vault.fingerprint(text.encode("utf-8", "replace"), context=_HASH)
