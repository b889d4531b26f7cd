"""Converts between Python and libpq: parameters to text, rows to dicts, errors to faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psycopg import pq

from cordata.errors import StatementError
from cordata.store.postgres.fault import Fault

if TYPE_CHECKING:
    from psycopg.abc import Transformer
    from psycopg.pq.abc import PGresult

#: Status of a statement that failed, or was skipped because an earlier one had failed.
FAILED = (
    pq.ExecStatus.FATAL_ERROR,
    pq.ExecStatus.PIPELINE_ABORTED,
    pq.ExecStatus.BAD_RESPONSE,
)
_FIELDS = (
    pq.DiagnosticField.SQLSTATE,
    pq.DiagnosticField.MESSAGE_PRIMARY,
    pq.DiagnosticField.CONSTRAINT_NAME,
    pq.DiagnosticField.TABLE_NAME,
    pq.DiagnosticField.COLUMN_NAME,
)


class Result:
    """The result of one statement."""

    __slots__ = ("_result", "_transformer")

    def __init__(self, transformer: Transformer, result: PGresult) -> None:
        self._transformer = transformer
        self._result = result

    @property
    def count(self) -> int:
        """Rows changed (or found)."""
        return self._result.command_tuples or 0

    def rows(self) -> list[dict[str, Any]]:
        """All rows."""
        result = self._result
        count = result.ntuples
        if not count:
            return []
        names = [(result.fname(n) or b"").decode() for n in range(result.nfields)]
        transformer = self._transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, count, lambda values: dict(zip(names, values, strict=True)))


def encode(value: object) -> bytes | None:
    """A parameter as text. Raises: StatementError when PostgreSQL cannot store it."""
    if value is None:
        return None
    if isinstance(value, str):
        if "\0" in value:
            raise StatementError("a text with a NUL character cannot be stored")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise StatementError("a text with half a surrogate pair cannot be stored") from error
    if isinstance(value, int):  # includes bool, as 0 and 1
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return b"\\x" + bytes(value).hex().encode()
    raise StatementError(f"a value of type {type(value).__name__} cannot be stored")


def fault_of(result: PGresult) -> Fault:
    """The error of a statement that failed."""
    found = [result.error_field(field) for field in _FIELDS]
    return Fault(*((data or b"").decode("utf-8", "replace") for data in found))


def reason(results: Sequence[PGresult]) -> str:
    """The reason that the server gave before it closed the connection."""
    for result in results:
        if result.status in FAILED:
            fault = fault_of(result)
            return f"{fault.message} ({fault.sqlstate})"
    return ""
