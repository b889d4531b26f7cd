"""One TOML value to the type a field declares, or a sentence saying what it should have been."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


class Unfit(ValueError):
    """The value does not have the declared type; the message says what was expected."""


def convert(value: object, kind: Any, *, base: Path) -> Any:
    """`value` as `kind`; relative paths are taken from `base`, the directory of the file.

    Knows str, int, float, bool, Path, Literal, X | None, tuple[X, ...], Mapping[str, X]; other
    classes (TOML's own dates and times) must match exactly. Raises: Unfit.
    """
    origin = get_origin(kind)
    if kind in _WORDS:
        return _scalar(value, kind)
    if kind is Path:
        return _path(value, base)
    if origin is Literal:
        return _choice(value, get_args(kind))
    if origin in (Union, types.UnionType):
        return _optional(value, get_args(kind), base)
    if origin is tuple:
        return _tuple(value, get_args(kind)[0], base)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table(value, get_args(kind)[1], base)
    if kind is Any or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    raise Unfit(f"must be {getattr(kind, '__name__', kind)}, not {describe(value)}")


def describe(value: object) -> str:
    """A value as the error text shows it: short, and in TOML's words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str) and ("://" in value or "@" in value or "=" in value):
        return "a text like an address"  # which may hold a password
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def is_section(kind: object) -> bool:
    """Whether a declared type is a (sub)section with keys of its own."""
    return isinstance(kind, type) and is_dataclass(kind)


def _scalar(value: object, kind: type) -> object:
    if kind is float and type(value) is int:
        return float(value)
    # `type() is`, since True is an int to isinstance and never a number to the user.
    if type(value) is kind:
        return value
    raise Unfit(f"must be {_WORDS[kind]}, not {describe(value)}")


def _path(value: object, base: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise Unfit(f"must be a path, not {describe(value)}")
    return base / Path(value).expanduser()


def _choice(value: object, choices: tuple[object, ...]) -> object:
    if value in choices and type(value) in {type(choice) for choice in choices}:
        return value
    raise Unfit(f"must be one of {', '.join(map(repr, choices))}, not {describe(value)}")


def _optional(value: object, kinds: tuple[Any, ...], base: Path) -> object:
    wanted = [kind for kind in kinds if kind is not type(None)]
    last: Unfit | None = None
    for kind in wanted:
        try:
            return convert(value, kind, base=base)
        except Unfit as error:
            last = error
    raise last or Unfit("takes no value")


def _tuple(value: object, kind: Any, base: Path) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise Unfit(f"must be a list, not {describe(value)}")
    return tuple(_each(item, kind, f"item {n}", base) for n, item in enumerate(value, start=1))


def _table(value: object, kind: Any, base: Path) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise Unfit(f"must be a table, not {describe(value)}")
    return {key: _each(item, kind, repr(key), base) for key, item in value.items()}


def _each(item: object, kind: Any, where: str, base: Path) -> object:
    try:
        return convert(item, kind, base=base)
    except Unfit as error:
        raise Unfit(f"{where} {error}") from None
