"""The form shapes of a source: a new one is stored, and the operator gets an alert."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from weakref import WeakKeyDictionary

import msgspec

from alpinehub.models import Source
from alpinehub.webhooks.field_names import plain, stem, target_of_key, target_of_label
from alpinehub.webhooks.fields import of_source
from alpinehub.webhooks.problems import shell_word
from alpinehub.webhooks.submission import FormShape
from cordata import Context, Store, StoreUnavailable, Tx

#: Most shapes stored of one form, and of all forms of a source: the address of an HTML form is
#: public, and arbitrary submissions must not fill the table.
MAX_SHAPES, MAX_OF_SOURCE = 50, 500
#: Shapes that one process remembers, so that it does not look for them in the store each time.
MAX_SEEN = 10_000
#: Names of fields in an alert, of the new ones and of those that are gone.
_LISTED = 10
#: A name without characters of an address or a link, and without invisible ones.
_is_word = re.compile(r"[\w '()-]+").fullmatch
_HOUR_US = 3_600_000_000
_encode = msgspec.json.Encoder().encode
#: (id of the source, its form, hash of the shape) -> when this process last found it stored.
_seen: WeakKeyDictionary[Store, dict[tuple[int, str, bytes], int]] = WeakKeyDictionary()


async def see(ctx: Context, source: Source, shape: FormShape, at: int) -> None:
    """Store a shape if it is new, unless the form has too many of them. `at`: when it was
    received, in microseconds since the epoch.

    The alert is sent before the shape is stored, so that a crash does not lose it. Raises nothing,
    since the submission is stored already, and must be accepted: after an error the shape of the
    next one is stored.
    """
    seen = _seen.setdefault(ctx.store, {})
    key = (source.id, shape.form_key, shape.hash)
    if at - seen.get(key, -_HOUR_US) < _HOUR_US:
        return
    try:
        await _see(ctx, source, shape, at)
    except StoreUnavailable:
        return
    except Exception:
        ctx.log.warning("the shape of a form cannot be stored", exc_info=True)
        return
    if len(seen) >= MAX_SEEN:
        seen.clear()
    seen[key] = at


async def _see(ctx: Context, source: Source, shape: FormShape, at: int) -> None:
    known = await ctx.store.read(
        lambda tx: tx.fetch_all("inbox_forms", source_id=source.id, form_key=shape.form_key)
    )
    same = next((one for one in known if bytes(one["shape"]) == shape.hash), None)
    if same is not None:
        if at - same["last_seen_at"] > _HOUR_US:
            await ctx.store.run(lambda tx: tx.execute("inbox_form_seen", id=same["id"], at=at))
        return
    if len(known) >= MAX_SHAPES:
        return
    if known:
        before = [FormShape(shape.form_key, msgspec.json.decode(one["fields"])) for one in known]
        _alert_of_change(ctx, source, shape.names, [one.names for one in before])
    await ctx.store.run(lambda tx: _add(tx, source, shape, at))


async def _add(tx: Tx, source: Source, shape: FormShape, at: int) -> None:
    row_count = await tx.fetch_one("inbox_form_count", source_id=source.id)
    if row_count is None or row_count["known"] >= MAX_OF_SOURCE:
        return
    await tx.execute(
        "inbox_form_add",
        source_id=source.id,
        form_key=shape.form_key,
        shape=shape.hash,
        fields=_encode(shape.fields).decode(),
        at=at,
    )


def _alert_of_change(
    ctx: Context, source: Source, now: frozenset[str], before: Sequence[frozenset[str]]
) -> None:
    """Alert if names are new (in no earlier shape) or gone (in all earlier ones, not in `now`).

    Some form builders do not send empty fields: so a field that was missing once does not count as
    gone.
    """
    new, gone = now.difference(*before), frozenset.intersection(*before) - now
    mapped = {
        plain(stem(place.partition(":")[2])): target
        for target, places in of_source(source.kind, source.mapping).fields.items()
        for place in places
    }
    parts = [f"{what} {_listed(of, mapped)}" for what, of in (("new:", new), ("gone:", gone)) if of]
    if not parts:
        return
    hotel, name = shell_word(source.hotel.code), shell_word(source.name)
    ctx.alert(
        f"form-changed:{source.id}",
        f"the form of source {source.name} of hotel {source.hotel.code} has changed: "
        f"{'; '.join(parts)}. `alpinehub source show {hotel} {name}` lists the fields of its "
        "forms. To see what the hub reads in a submission: `alpinehub inbox list --hotel "
        f"{hotel} --source {name} --state all`, then `alpinehub inbox show ID`. If it does not "
        f"recognise a field: `alpinehub inbox map {hotel} {name} --field TARGET=PLACE --try ID`, "
        "then the same without --try (`alpinehub inbox map --help` lists targets and places)",
        ids=[source.hotel.code],
    )


def _listed(names: Collection[str], mapped: Mapping[str, str]) -> str:
    """The names of fields with their meanings; those without a meaning are only counted.

    Anybody can send a form with fields of any name: a link, or a person's name. One with a meaning
    consists of the words of field_names.py or of the mapping.
    """
    known = {name: _meaning(name, mapped) for name in sorted(names) if _is_word(name)}
    words = [f"{name} ({meaning})" for name, meaning in known.items() if meaning][:_LISTED]
    if others := len(names) - len(words):
        what = "other" if words else "field"
        words.append(f"{others} {what}{'s' if others > 1 else ''}")
    return ", ".join(words)


def _meaning(name: str, mapped: Mapping[str, str]) -> str:
    return mapped.get(plain(stem(name))) or target_of_key(name) or target_of_label(name)
