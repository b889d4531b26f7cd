"""Sealed secrets open with the same key and context only."""

from __future__ import annotations

import pytest

from cordata.errors import ConfigError, PermanentError
from cordata.vault import Vault, new_key


def test_open_gives_the_secret_when_key_and_context_are_the_same() -> None:
    key = new_key()
    sealed = Vault(key).seal(b"demo", context="source")
    assert b"demo" not in sealed
    assert len(sealed) == 4 + 40
    assert Vault(key).open(sealed, context="source") == b"demo"


def test_seal_gives_other_bytes_each_time() -> None:
    vault = Vault(new_key())
    assert vault.seal(b"demo", context="source") != vault.seal(b"demo", context="source")


@pytest.mark.parametrize("damage", [lambda s: s[:-1] + bytes([s[-1] ^ 1]), lambda s: s[:10]])
def test_open_refuses_when_the_bytes_were_changed(damage: object) -> None:
    vault = Vault(new_key())
    sealed = vault.seal(b"demo", context="source")
    with pytest.raises(PermanentError, match="cannot be opened"):
        vault.open(damage(sealed), context="source")  # type: ignore[operator]


def test_open_refuses_when_key_or_context_differ() -> None:
    vault = Vault(new_key())
    sealed = vault.seal(b"demo", context="source")
    with pytest.raises(PermanentError):
        vault.open(sealed, context="user")
    with pytest.raises(PermanentError):
        Vault(new_key()).open(sealed, context="source")


def test_vault_fails_at_first_use_only_when_there_is_no_key() -> None:
    vault = Vault(None)
    assert not vault.usable
    with pytest.raises(ConfigError, match="master-key is missing") as caught:
        vault.seal(b"x", context="source")
    assert "cordata credentials init" in (caught.value.hint or "")


@pytest.mark.parametrize("key", [b"", b"abc", b"zz" * 32, b"ab" * 31, b"\xff" * 64])
def test_vault_refuses_when_the_key_is_malformed(key: bytes) -> None:
    with pytest.raises(ConfigError, match="64 hex digits") as caught:
        Vault(key)
    # `credentials init` keeps what is there.
    assert "remove the file, then" in (caught.value.hint or "")
