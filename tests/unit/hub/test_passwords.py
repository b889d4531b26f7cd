"""Stored passwords."""

from __future__ import annotations

import pytest

from alpinehub.passwords import hash_password, verify_password


def test_password_is_verified_when_it_is_the_right_one() -> None:
    stored = hash_password("pässword")
    assert stored.startswith("scrypt$") and "pässword" not in stored
    assert verify_password("pässword", stored)
    assert not verify_password("passwort", stored)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "demo",
        "plain$demo",
        "scrypt$14$8$1$x",
        "scrypt$x$8$1$AAAA$AAAA",
        "scrypt$60$8$1$AAAA$AAAA",
        "scrypt$14$8$1$!$AAAA",
        "argon2$14$8$1$AAAA$AAAA",
        "scrypt$-1$8$1$AAAA$AAAA",
    ],
)
def test_password_never_fits_when_the_stored_text_is_broken(stored: str) -> None:
    assert not verify_password("demo", stored)
