"""Limits of the type, the key and the id of an event: the same on every store.

PostgreSQL cannot index an incompressible text of more than about 2,700 bytes, SQLite has no limit:
an event that one store accepts must not fail on the other. A type and a key together fit one index.
"""

from __future__ import annotations

from cordata.errors import PermanentError

TYPE_CHARS, KEY_BYTES, ID_CHARS, GROUP_CHARS = 200, 1024, 200, 200


def check_event_names(type: str, key: str | None, event_id: str | None) -> None:
    """Raises: PermanentError. Its message does not quote the key, which may be personal data."""
    check_type(type)
    if key is not None:
        check_key(key, "publish(): the key")
    if event_id is not None and not 1 <= len(event_id) <= ID_CHARS:
        raise PermanentError(
            f"publish(): the event_id has {len(event_id):,} characters; 1 to {ID_CHARS} are allowed"
        )


def check_type(type: str) -> None:
    """Raises: PermanentError when the type is empty, too long, or has a NUL character."""
    if not 1 <= len(type) <= TYPE_CHARS:
        raise PermanentError(
            f"publish(): the type has {len(type):,} characters; 1 to {TYPE_CHARS} are allowed",
            hint="data that differs from event to event belongs in the payload",
        )
    if "\0" in type:
        raise PermanentError("publish(): the type has a NUL character, which cannot be stored")


def check_key(key: str, what: str) -> None:
    """`what` names the key in errors. Raises: PermanentError when it is too long or has a NUL."""
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    if size > KEY_BYTES:
        raise PermanentError(
            f"{what} has {size:,} bytes; {KEY_BYTES:,} are allowed",
            hint="use a hash of it: sha256(...).hexdigest()",
        )
    if "\0" in key:
        raise PermanentError(f"{what} has a NUL character, which cannot be stored")
