"""An operator mends a mapping, and what waited for it is interpreted again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from alpinehub.hotels import Unusable
from alpinehub.inbox.listing import InboxFilter, becomes, list_inbox, require_row
from alpinehub.inbox.processing import interpreted, settle
from alpinehub.sources import require_source
from alpinehub.webhooks import fields as mappings
from alpinehub.webhooks.fields import Mapping
from alpinehub.webhooks.interpretation import Ignored, Mapped, Unmapped
from cordata import Context, Row, Store, Tx

_STEP = 200
MappingChange = Callable[[Mapping], Mapping]


@dataclass(frozen=True, slots=True)
class Mended:
    """What a change of a mapping does to the submissions of its source that are in review."""

    mapping: Mapping
    looked_at: int
    #: Of those, which can be mapped by it.
    mapped: int


async def change_mapping(
    store: Store, hotel: str, name: str, change: MappingChange, *, dry_run: bool = False
) -> Mended:
    """Change the mapping of a source and say what that mends. Raises: Unusable."""

    async def unit(tx: Tx) -> tuple[int, Mapping]:
        source = await require_source(tx, hotel, name)
        before = stored_mapping(source)
        mapping = msgspec.structs.replace(change(before), revision=before.revision)
        if mapping != before:
            mapping = msgspec.structs.replace(mapping, revision=before.revision + 1)
        if problems := mappings.problems_of(mapping):
            raise Unusable("; ".join(problems), hint="`alpinehub inbox map --help`")
        if mapping != before and not dry_run:
            was, written = source["mapping"] or "", mappings.encode(mapping)
            if not await tx.execute("set_mapping", id=source["id"], mapping=written, was=was):
                raise Unusable("somebody else has just changed this mapping", hint="try it again")
        return source["id"], mapping

    _, mapping = await store.run(unit)
    wanted = InboxFilter(state="review", hotel=hotel, source=name, limit=_STEP)
    rows = await list_inbox(store, wanted)
    found = [await would_become(store, row["id"], mapping) for row in rows]
    return Mended(mapping, len(rows), sum(isinstance(one, Mapped) for one in found))


def stored_mapping(source: Row) -> Mapping:
    """The mapping of a source; that of its kind where it has none. Raises: Unusable."""
    if source["kind"] not in mappings.OF_KIND:
        kinds = ", ".join(mappings.OF_KIND)
        raise Unusable(
            f"a source of kind {source['kind']} has no mapping", hint=f"those of {kinds} have"
        )
    try:
        return mappings.of_source(source["kind"], source["mapping"])
    except msgspec.DecodeError as error:
        raise Unusable(f"the stored mapping cannot be read: {error}", hint="--file") from None


async def would_become(
    store: Store, inbox_id: int, mapping: Mapping
) -> Mapped | Unmapped | Ignored:
    """What a submission would be by a mapping. Raises: Unusable."""
    row = await store.read(partial(require_row, inbox_id=inbox_id))
    return interpreted(row, mapping)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What became of a submission that was interpreted again."""

    id: int
    state: str
    problems: Sequence[str] = ()


async def reprocess(
    ctx: Context, ids: Sequence[int], *, dry_run: bool = False, force: bool = False
) -> AsyncIterator[Again]:
    """Interpret submissions again, one after the other. Raises: Unusable, StoreUnavailable.

    `force`: those that are mapped as well; what is different then is a change of the reservation.
    """
    for inbox_id in ids:
        read = partial(require_row, inbox_id=inbox_id)
        row = await ctx.store.read(read)
        if row["kind"] not in mappings.OF_KIND:
            raise Unusable(f"submission {inbox_id} is of kind {row['kind']}: nothing to interpret")
        if not dry_run:
            await settle(ctx, inbox_id, force=force)
            row = await ctx.store.read(read)
            problems = (row["error"] or "").split("; ") if row["state"] == "review" else ()
            yield Again(id=inbox_id, state=row["state"], problems=tuple(problems))
        else:
            now = becomes(row)
            yield Again(id=inbox_id, state=now.state, problems=now.problems)


async def in_review(store: Store, hotel: str | None, source: str | None) -> list[int]:
    """All submissions that wait for a mended mapping, oldest first."""
    found: list[int] = []
    after = 0
    while True:
        wanted = InboxFilter(state="review", hotel=hotel, source=source, limit=_STEP, after=after)
        page = [row["id"] for row in await list_inbox(store, wanted)]
        found += page
        if len(page) < _STEP:
            return sorted(found)
        after = page[-1]


#: What an operator may accept as it is: a problem of the stay that a person can judge.
ACCEPTABLE = ("past:", "too_long:")


async def accept(ctx: Context, inbox_id: int, *, by: str) -> None:
    """Have the hotel see a submission of the review list although its stay is in the past, or very
    long. Raises: Unusable, StoreUnavailable.
    """
    row = await ctx.store.read(partial(require_row, inbox_id=inbox_id))
    if row["state"] != "review":
        raise Unusable(f"submission {inbox_id} is {row['state']}: it is not in the review list")
    found, _ = interpreted(row)
    problems = found.problems if isinstance(found, Unmapped) else ()
    if others := [one for one in problems if not one.startswith(ACCEPTABLE)]:
        raise Unusable(
            f"submission {inbox_id} cannot be accepted as it is: {', '.join(others)}",
            hint="`alpinehub inbox map` says how its fields are read",
        )
    await settle(ctx, inbox_id, accepted_by=by)


async def reject(store: Store, inbox_id: int, reason: str) -> None:
    """Have no hotel see a submission that waits. Raises: Unusable."""

    async def unit(tx: Tx) -> None:
        row = await require_row(tx, inbox_id)
        if row["state"] not in ("received", "review"):
            raise Unusable(f"submission {inbox_id} is {row['state']} already")
        done = await tx.execute("inbox_reject", id=inbox_id, reason=reason[:200], now=tx.now_us)
        if not done:
            raise Unusable(f"submission {inbox_id} was settled at this moment")

    await store.run(unit)
