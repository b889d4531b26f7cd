"""Cache of hotels, accounts and sources in one process: read again only after a change.

A look-up trusts its memory for a second; after that one row says whether it is still current.
So a change is effective everywhere within that second, an idle process asks nothing, and no wake-up
can be lost because none is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar
from weakref import WeakKeyDictionary, proxy

import msgspec

from alpinehub.models import Account, Hotel, OldSecret, Options, Settings, Source
from cordata import Context, CordataError, Row, Store, Tx

#: Seconds for which a look-up uses the cache unchecked; a change must be effective within 2 s.
TRUST_S = 1.0

T = TypeVar("T")

_log = logging.getLogger("alpinehub.directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything, as of one revision."""

    revision: int
    accounts: Mapping[str, Account] = field(default_factory=dict)
    sources: Mapping[int, Source] = field(default_factory=dict)
    #: A secret may be shared by sources of several hotels. That of before a rotation is here, too.
    sources_by_fingerprint: Mapping[bytes, tuple[Source, ...]] = field(default_factory=dict)
    sources_by_hotel: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)


class Directory:
    """The cache of one process."""

    def __init__(self, store: Store) -> None:
        #: Not to keep alive the key under which `directory_of` keeps this.
        self._store = proxy(store)
        self._snapshot = Snapshot(revision=-1)
        self._trusted_until = 0.0
        #: Of the read that is under way: what it raises, or None.
        self._reading: asyncio.Future[CordataError | None] | None = None

    async def snapshot(self) -> Snapshot:
        """The snapshot, checked against the store when the last check is too old.

        Calls at the same time share one read, and its failure. Raises: StoreUnavailable, for
        without the store nothing can be taken anyway.
        """
        called = monotonic()
        while called >= self._trusted_until:  # a read that began long before may miss a change
            if self._reading is None:
                await self._read()
            elif error := await asyncio.shield(self._reading):
                raise copy(error)  # a raised error object keeps its traceback
        return self._snapshot

    async def _read(self) -> None:
        self._reading = reading = asyncio.get_running_loop().create_future()
        error, asked = None, monotonic()
        try:
            self._snapshot = await self._store.read(self._refresh)
            self._trusted_until = asked + TRUST_S
        except CordataError as raised:
            error = raised
            raise
        finally:  # if this call is cancelled, the next one reads
            self._reading = None
            reading.set_result(error)

    async def _refresh(self, tx: Tx) -> Snapshot:
        row = await tx.fetch_one("directory_revision")
        revision = int(row["revision"]) if row is not None else -1
        if revision == self._snapshot.revision:
            return self._snapshot
        return await read_snapshot(tx, revision)


async def read_snapshot(tx: Tx, revision: int) -> Snapshot:
    """Read everything that is not disabled."""
    by_id = {row["id"]: _hotel(row) for row in await tx.fetch_all("active_hotels")}
    sources: dict[int, Source] = {}
    by_fingerprint: dict[bytes, tuple[Source, ...]] = {}
    by_hotel: dict[str, tuple[Source, ...]] = {}
    for row in await tx.fetch_all("active_sources"):
        source = source_of(row, by_id[row["hotel_id"]])
        sources[source.id] = source
        code = source.hotel.code
        by_hotel[code] = (*by_hotel.get(code, ()), source)
        fingerprints = {
            source.fingerprint,
            *((source.before.fingerprint,) if source.before else ()),
        }
        for fingerprint in fingerprints:
            by_fingerprint[fingerprint] = (*by_fingerprint.get(fingerprint, ()), source)
    reads: dict[int, list[Hotel]] = {}
    for row in await tx.fetch_all("active_account_hotels"):
        reads.setdefault(row["account_id"], []).append(by_id[row["hotel_id"]])
    accounts = {
        row["name"]: Account(**row, hotels=tuple(reads.get(row["id"], ())))
        for row in await tx.fetch_all("active_accounts")
    }
    return Snapshot(
        revision=revision,
        accounts=accounts,
        sources=sources,
        sources_by_fingerprint=by_fingerprint,
        sources_by_hotel=by_hotel,
    )


def _hotel(row: Row) -> Hotel:
    settings = settings_of(row["settings"], row["code"])
    return Hotel(**{**row, "settings": settings, "pushed": bool(row["pushed"])})


def joined_hotel(row: Row) -> Hotel:
    """The hotel of a row that is joined to it, disabled or not; its settings are not read."""
    return Hotel(
        id=row["hotel_id"],
        code=row["hotel"],
        name=row["hotel_name"],
        time_zone=row["time_zone"],
        language=row["language"],
        region=row["region"],
    )


def source_of(row: Row, hotel: Hotel) -> Source:
    """A source as the store has it."""
    before = None
    if row["secret_before"] is not None and row["before_until"] is not None:
        before = OldSecret(
            sealed=row["secret_before"],
            fingerprint=row["fingerprint_before"],
            until=row["before_until"],
        )
    return Source(
        id=row["id"],
        hotel=hotel,
        kind=row["kind"],
        name=row["name"],
        sealed=row["secret"],
        fingerprint=row["fingerprint"],
        before=before,
        mapping=row["mapping"],
        options=options_of(row["options"], row["name"]),
    )


def settings_of(text: str | None, code: str) -> Settings:
    """The settings of a hotel as they are stored; the defaults if they cannot be read, so that
    other hotels still work.
    """
    return _decoded(text, Settings, f"the settings of hotel {code}")


def options_of(text: str | None, name: str) -> Options:
    """The options of a source as they are stored."""
    return _decoded(text, Options, f"the options of source {name}")


def _decoded(text: str | None, type_: type[T], what: str) -> T:
    """The record in a JSON text; without one, and for one that cannot be read, the default."""
    if text:
        try:
            return msgspec.json.decode(text, type=type_)
        except msgspec.DecodeError as error:
            _log.error("%s are not used: %s", what, error)
    return type_()


_directories: WeakKeyDictionary[Store, Directory] = WeakKeyDictionary()


def directory_of(ctx: Context) -> Directory:
    """The directory of this process; made at the first call."""
    return _directories.get(ctx.store) or _directories.setdefault(ctx.store, Directory(ctx.store))
