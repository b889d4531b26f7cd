"""The options of `alpinehub inbox map` as a change of a mapping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from alpinehub.webhooks.fields import Mapping, decode


def changed_by(
    whole: bytes | None,
    *,
    fields: Sequence[str],
    values: Sequence[str],
    defaults: Sequence[str],
    ignore: Sequence[str],
    date_order: str | None,
    without_stay: str | None,
) -> Callable[[Mapping], Mapping]:
    """What the options do to a mapping: `whole` takes its place, the others change it.

    Raises: click.UsageError.
    """
    places = [_pair(word, "TARGET=PLACE") for word in fields]
    counts = [_pair(word, "TARGET=TEXT") for word in defaults]
    meanings = [_meaning(word) for word in values]
    try:
        given = None if whole is None else decode(whole)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--file: {error}") from None

    def change(mapping: Mapping) -> Mapping:
        mapping = mapping if given is None else given
        change: dict[str, Any] = {}
        if places:
            change["fields"] = _with_places(mapping, places)
        if meanings:
            change["values"] = _with_meanings(mapping, meanings)
        if counts:
            merged = {**mapping.defaults, **dict(counts)}
            change["defaults"] = {target: text for target, text in merged.items() if text}
        if ignore:
            change["ignore"] = tuple(dict.fromkeys((*mapping.ignore, *ignore)))
        if date_order:
            change["date_order"] = date_order
        if without_stay:
            change["without_stay"] = without_stay
        return msgspec.structs.replace(mapping, **change)

    return change


def _with_places(mapping: Mapping, places: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """A target that is named gets the places named with it, and no others; without any, none."""
    named: dict[str, tuple[str, ...]] = {}
    for target, place in places:
        named[target] = named.get(target, ()) + ((place,) if place else ())
    merged = {**mapping.fields, **named}
    return {target: found for target, found in merged.items() if found}


def _with_meanings(
    mapping: Mapping, meanings: Sequence[tuple[str, str, str]]
) -> dict[str, dict[str, str]]:
    merged = {target: dict(known) for target, known in mapping.values.items()}
    for target, text, meaning in meanings:
        merged.setdefault(target, {})[text] = meaning
    return merged


def _pair(word: str, form: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise click.UsageError(f"{word!r} must be {form}")
    return name, value


def _meaning(word: str) -> tuple[str, str, str]:
    left, meaning = _pair(word, "TARGET:TEXT=MEANING")
    target, colon, text = left.partition(":")
    if not target or not colon or not text:
        raise click.UsageError(f"{word!r} must be TARGET:TEXT=MEANING")
    return target, text, meaning
