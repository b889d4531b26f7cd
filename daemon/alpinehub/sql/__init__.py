"""The hub's statements and migrations, and how a list is passed to a statement."""

from collections.abc import Iterable

import msgspec


def encode_list(values: Iterable[object]) -> str:
    """A list as a parameter of a statement: the JSON of its values."""
    return msgspec.json.encode(list(values)).decode()
