"""Passwords: scrypt of the standard library, with its parameters and salt in the stored text."""

from __future__ import annotations

import hmac
import os
from base64 import b64decode, b64encode
from hashlib import scrypt

#: 16 MiB and about 40 ms each: what a login costs, once per password and worker in a while.
_LOG2_N, _R, _P = 14, 8, 1
_SALT_BYTES, _KEY_BYTES = 16, 32
#: What a stored text may ask for at most (128 MiB), should someone edit a row.
_MAX_MEMORY = 1 << 27


def hash_password(password: str) -> str:
    """`scrypt$14$8$1$salt$key`, with a new salt. Blocks for about 40 ms."""
    salt = os.urandom(_SALT_BYTES)
    key = _derive(password, salt, _LOG2_N, _R, _P)
    return f"scrypt${_LOG2_N}${_R}${_P}${b64encode(salt).decode()}${b64encode(key).decode()}"


def verify_password(password: str, stored: str) -> bool:
    """Whether `stored` was made from the password. Blocks for about 40 ms, releasing the GIL.

    A text of another form, or with parameters out of bounds, is no match.
    """
    try:
        scheme, log2_n, r, p, salt, key = stored.split("$")
        if scheme != "scrypt":
            return False
        derived = _derive(password, b64decode(salt), int(log2_n), int(r), int(p))
        return hmac.compare_digest(derived, b64decode(key))
    except ValueError:
        return False


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
