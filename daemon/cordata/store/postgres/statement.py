"""What is known of a statement before it is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What becomes of a statement in a transaction that many units share."""

    #: Only reads.
    READ = "read"
    #: Reads, and holds off whoever would change it.
    SHARE = "share"
    #: INSERT: adds rows; a row that is there already makes the unit fail.
    ADD = "add"
    #: INSERT ... ON CONFLICT DO NOTHING.
    OFFER = "offer"
    #: UPDATE, DELETE or INSERT ... ON CONFLICT DO UPDATE of rows that its parameters name.
    CHANGE = "change"
    #: Anything else: its unit needs a transaction of its own.
    OTHER = "other"


#: What a shared transaction may write.
WRITES = (Kind.ADD, Kind.OFFER, Kind.CHANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is known of a statement. Names are as the server folds them."""

    kind: Kind
    #: The one it writes.
    table: str = ""
    #: ADD, OFFER: the columns that are given as a parameter, and its index. CHANGE: those whose
    #: equality with a parameter names the rows; rows of different values are different rows.
    columns: Mapping[str, int] = field(default_factory=dict)
    #: It may read these besides the rows it writes (any name within is taken for a table).
    sees: frozenset[str] = frozenset()
    #: It may take rows of other tables with it, by foreign keys.
    cascades: bool = False
    #: Whether an INSERT has exactly one row.
    single: bool = False
    #: Whether it returns rows.
    returns: bool = False
    #: The merged form with `{types}` for the list that `merge` makes; "": there is none.
    merged: str = ""
    #: Of a merged OFFER, the parameters that each row it added comes back with, as texts; rows of
    #: the same ones are as good as each other.
    given: tuple[int, ...] = ()

    def merge(self, types: Sequence[str]) -> str:
        """The merged form for parameters of these types: `$1`, `$2`, ... are arrays of them.

        Of a READ the first column is the unit's number, from 1.
        """
        return self.merged.replace(
            "{types}", ", ".join(f"${n}::{t}[]" for n, t in enumerate(types, 1))
        )
