"""The form shapes of a source: a new one is stored, and the operator gets an alert."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from alpinehub.webhooks.field_names import target_of_key, target_of_label
from alpinehub.webhooks.submission import FormShape
from cordata import Context, Row, Tx

#: Most shapes stored of one form, and of all forms of a source: the address of an HTML form is
#: public, and arbitrary submissions must not fill the table.
MAX_SHAPES, MAX_OF_SOURCE = 50, 500
_HOUR_US = 3_600_000_000
_encode = msgspec.json.Encoder().encode


async def see_form(ctx: Context, row: Row, shape: FormShape) -> None:
    """Store a shape if it is new, unless the form has too many of them.

    The alert is sent before the shape is stored, so that a crash does not lose it.
    """
    known = await ctx.store.read(
        lambda tx: tx.fetch_all("inbox_forms", source_id=row["source_id"], form_key=shape.form_key)
    )
    same = next((one for one in known if bytes(one["shape"]) == shape.hash), None)
    if same is not None:
        at: int = row["received_at"]
        if at - same["last_seen_at"] > _HOUR_US:
            await ctx.store.run(lambda tx: tx.execute("inbox_form_seen", id=same["id"], at=at))
        return
    if len(known) >= MAX_SHAPES:
        return
    if known:
        before = [FormShape(shape.form_key, msgspec.json.decode(one["fields"])) for one in known]
        _alert_of_change(ctx, row, shape.names, [one.names for one in before])
    await ctx.store.run(lambda tx: _add(tx, row, shape))


async def _add(tx: Tx, row: Row, shape: FormShape) -> None:
    row_count = await tx.fetch_one("inbox_form_count", source_id=row["source_id"])
    if row_count is None or row_count["known"] >= MAX_OF_SOURCE:
        return
    await tx.execute(
        "inbox_form_add",
        source_id=row["source_id"],
        form_key=shape.form_key,
        shape=shape.hash,
        fields=_encode(shape.fields).decode(),
        at=row["received_at"],
    )


def _alert_of_change(
    ctx: Context, row: Row, now: frozenset[str], before: Sequence[frozenset[str]]
) -> None:
    """Alert if names are new (in no earlier shape) or gone (in all earlier ones, not in `now`).

    Some form builders do not send empty fields: so a field that was missing once does not count as
    gone.
    """
    new, gone = now.difference(*before), frozenset.intersection(*before) - now
    parts = [f"{what} {_listed(of)}" for what, of in (("new:", new), ("gone:", gone)) if of]
    if not parts:
        return
    ctx.alert(
        f"form-changed:{row['source_id']}",
        f"the form of source {row['source']} of hotel {row['hotel']} has changed ("
        f"{'; '.join(parts)}); look whether its requests still say all: `alpinehub source show "
        f"{row['hotel']} {row['source']}`",
        ids=[row["hotel"]],
    )


def _listed(names: Collection[str]) -> str:
    """Fields as text, by their meanings, since their names are the sender's text."""
    meant = sorted({meaning for name in names if (meaning := _meaning(name))})
    others = sum(1 for name in names if not _meaning(name))
    if others:
        meant.append(f"{others} {'others' if others > 1 else 'other'}" if meant else f"{others}")
    return ", ".join(meant)


def _meaning(name: str) -> str:
    return target_of_key(name) or target_of_label(name)
