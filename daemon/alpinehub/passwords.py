"""Passwords: scrypt of the standard library, with its parameters and salt in the stored text."""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode
from hashlib import scrypt

#: 16 MiB and about 40 ms: the cost of a login that is not cached (login.py).
_LOG2_N, _R, _P = 14, 8, 1
_SALT_BYTES, _KEY_BYTES = 16, 32
#: Most memory for the parameters of a stored text (128 MiB), which may have been edited by hand.
_MAX_MEMORY = 1 << 27


def hash_password(password: str) -> str:
    """`scrypt$14$8$1$salt$key`, with a new salt. Blocks for about 40 ms."""
    salt = os.urandom(_SALT_BYTES)
    key = _derive(password, salt, _LOG2_N, _R, _P)
    return f"scrypt${_LOG2_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(key).decode()}"


def hash_password_like(password: str, stored: str) -> str:
    """As `hash_password`, with the salt and the parameters of a stored text of the same account.

    Then one computation checks a password against both. A text of another form is not used.
    """
    try:
        scheme, log2_n, r, p, salt, _ = stored.split("$")
        if scheme != "scrypt":
            return hash_password(password)
        key = _derive(password, b64decode(salt), int(log2_n), int(r), int(p))
    except ValueError:
        return hash_password(password)
    return f"scrypt${log2_n}${r}${p}${salt}${b64encode(key).decode()}"


def dummy_password() -> str:
    """A stored text that no password matches, and that costs the same to check as others."""
    salt, key = (b64encode(os.urandom(size)).decode() for size in (_SALT_BYTES, _KEY_BYTES))
    return f"scrypt${_LOG2_N}${_R}${_P}${salt}${key}"


def verify_password(password: str, *stored: str) -> bool:
    """Whether one of `stored` was made from the password. Blocks for about 40 ms, releasing the
    GIL, for all that have the same salt and parameters together.

    A text of another form, or with parameters out of bounds, is no match.
    """
    derived: dict[str, bytes] = {}
    right = False
    for text in stored:
        try:
            scheme, log2_n, r, p, salt, key = text.split("$")
            if scheme != "scrypt":
                continue
            how = f"{log2_n}${r}${p}${salt}"
            if how not in derived:
                derived[how] = _derive(password, b64decode(salt), int(log2_n), int(r), int(p))
            right |= hmac.compare_digest(derived[how], b64decode(key))
        except ValueError:
            continue
    return right


def _derive(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=1 << log2_n,
        r=r,
        p=p,
        maxmem=_MAX_MEMORY,
        dklen=_KEY_BYTES,
    )
