"""Actions of an operator: change a mapping, reprocess, accept and reject submissions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from alpinehub.hotels import Unusable
from alpinehub.inbox.listing import InboxFilter, list_inbox, preview_of, require_row
from alpinehub.inbox.processing import interpreted, settle
from alpinehub.sources import require_source
from alpinehub.webhooks import fields as mappings
from alpinehub.webhooks.fields import FieldMapping
from alpinehub.webhooks.interpretation import Ignored, Mapped, Unmapped
from alpinehub.webhooks.problems import next_step
from cordata import Context, Row, Store, Tx

#: Submissions that are tried with a new mapping; more than the review list has.
_TRIED, _ALL = 200, 2**31
MappingChange = Callable[[FieldMapping], FieldMapping]


@dataclass(frozen=True, slots=True)
class MappingResult:
    """What a change of a mapping does to the submissions of its source that are in review."""

    mapping: FieldMapping
    examined: int
    #: How many of them the new mapping can map.
    mapped: int


async def change_mapping(
    store: Store, hotel: str, name: str, change: MappingChange, *, dry_run: bool = False
) -> MappingResult:
    """Change the mapping of a source, and count what it can map now. Raises: Unusable."""

    async def unit(tx: Tx) -> FieldMapping:
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
                raise Unusable("this mapping was changed at the same time", hint="try again")
            await tx.execute("bump_directory")
        return mapping

    mapping = await store.run(unit)
    wanted = InboxFilter(state="review", hotel=hotel, source=name, limit=_TRIED)
    rows = await list_inbox(store, wanted)
    found = [await try_mapping(store, row["id"], mapping) for row in rows]
    return MappingResult(mapping, len(rows), sum(isinstance(one, Mapped) for one in found))


def stored_mapping(source: Row) -> FieldMapping:
    """The mapping of a source, by default that of its kind. Raises: Unusable."""
    if source["kind"] not in mappings.OF_KIND:
        kinds = ", ".join(mappings.OF_KIND)
        raise Unusable(
            f"a source of kind {source['kind']} has no mapping",
            hint=f"only {kinds} sources have one",
        )
    try:
        return mappings.of_source(source["kind"], source["mapping"])
    except msgspec.DecodeError as error:
        raise Unusable(
            f"the stored mapping cannot be read: {error}",
            hint="source.mapping must be a mapping as `alpinehub inbox map` prints it, or NULL",
        ) from None


async def try_mapping(
    store: Store, inbox_id: int, mapping: FieldMapping
) -> Mapped | Unmapped | Ignored:
    """The result of interpreting a submission by a mapping; stores nothing. Raises: Unusable."""
    row = await store.read(partial(require_row, inbox_id=inbox_id))
    if not row["body"]:
        raise Unusable(f"the text of submission {inbox_id} was deleted: nothing to interpret")
    return interpreted(row, mapping)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReprocessResult:
    """The result of interpreting a submission again."""

    id: int
    state: str
    #: False: it is in review, or stays rejected, or its text was deleted (`text_deleted`).
    done: bool
    problems: Sequence[str] = ()


async def reprocess(
    ctx: Context,
    ids: Sequence[int],
    *,
    dry_run: bool = False,
    force: bool = False,
    rejected: bool = True,
) -> AsyncIterator[ReprocessResult]:
    """Interpret submissions again, each once, in their order: those in review, and those that were
    rejected, as long as their text is kept. Raises: Unusable, StoreUnavailable.

    `force`: also those that are mapped; a difference then changes the reservation. `rejected`:
    False leaves out those that were rejected meanwhile.
    """
    states = {"review", *(["rejected"] if rejected else []), *(["mapped"] if force else [])}
    for inbox_id in dict.fromkeys(ids):
        read = partial(require_row, inbox_id=inbox_id)
        row = await ctx.store.read(read)
        if row["kind"] not in mappings.OF_KIND:
            raise Unusable(f"submission {inbox_id} is of kind {row['kind']}: nothing to interpret")
        before = state = row["state"]
        problems: Sequence[str] = ()
        if dry_run and state in states and row["body"]:
            now = preview_of(row)
            state, problems = now.state, now.problems
        elif state in states:
            if not dry_run:
                await settle(ctx, inbox_id, state=state)
                row = await ctx.store.read(read)
            state = row["state"]
            problems = _problems_of(row)
        stays_rejected = rejected and state == before == "rejected"
        done = state != "review" and not stays_rejected and "text_deleted" not in problems
        yield ReprocessResult(id=inbox_id, state=state, done=done, problems=problems)


def _problems_of(row: Row) -> Sequence[str]:
    """Why a submission is not mapped, after it was interpreted."""
    if not row["body"]:
        return ("text_deleted",)
    if row["state"] == "review":
        return tuple((row["error"] or "").split("; "))
    return (row["outcome"],) if row["state"] == "rejected" and row["outcome"] else ()


async def in_review(store: Store, hotel: str | None, source: str | None) -> list[int]:
    """The ids of all submissions in review, oldest first. Raises: Unusable, as `list_inbox`."""
    wanted = InboxFilter(state="review", hotel=hotel, source=source, limit=_ALL)
    return sorted(row["id"] for row in await list_inbox(store, wanted))


async def accept(ctx: Context, inbox_id: int, *, by: str) -> str:
    """Accept a submission of the review list although its stay is in the past, or very long.

    Returns its outcome; a `duplicate` is not sent, for example because a later submission has
    changed the reservation. Raises: Unusable, StoreUnavailable.
    """
    row = await ctx.store.read(partial(require_row, inbox_id=inbox_id))
    if row["state"] != "review":
        raise Unusable(
            f"submission {inbox_id} is {row['state']}: it is not in the review list",
            hint=f"`alpinehub inbox show {inbox_id}`",
        )
    found, _ = interpreted(row, accept=True)
    if not isinstance(found, Mapped):
        if isinstance(found, Unmapped):
            what, hotel, source = ", ".join(found.problems), row["hotel"], row["source"]
            hint = next_step(found.problems, hotel=hotel, source=source, id_=str(inbox_id))
        else:
            what = found.outcome
            hint = f"`alpinehub inbox reprocess {inbox_id}` takes it off the review list"
        raise Unusable(f"submission {inbox_id} cannot be accepted as it is: {what}", hint=hint)
    await settle(ctx, inbox_id, accepted_by=by)
    row = await ctx.store.read(partial(require_row, inbox_id=inbox_id))
    if row["state"] != "mapped":
        text = f"submission {inbox_id} or its source was changed at the same time"
        raise Unusable(
            f"{text}: the submission is {row['state']}", hint=f"`alpinehub inbox show {inbox_id}`"
        )
    return str(row["outcome"])


async def reject(store: Store, inbox_id: int, reason: str, *, erase: bool = False) -> None:
    """Reject a submission that is not settled: no hotel gets it. Its text is kept for a while, so
    that `reprocess` can take that back; `erase`: it is deleted now, also of one that was rejected
    before. Raises: Unusable.
    """

    async def unit(tx: Tx) -> None:
        row = await require_row(tx, inbox_id)
        if row["state"] == "mapped" or (row["state"] == "rejected" and not erase):
            raise Unusable(f"submission {inbox_id} is {row['state']} already")
        why = {"id": inbox_id, "reason": reason[:200]}
        done = row["state"] == "rejected" or await tx.execute("inbox_reject", **why, now=tx.now_us)
        if not done or (erase and not await tx.execute("inbox_erase", **why, empty=b"")):
            raise Unusable(f"submission {inbox_id} was settled at the same time")

    await store.run(unit)
