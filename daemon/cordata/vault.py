"""Secrets at rest: libsodium's secretbox, with keys derived from one master key."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING

from cordata.errors import ConfigError, PermanentError

if TYPE_CHECKING:
    from nacl.secret import SecretBox

MASTER_KEY = "master-key"
_KEY_BYTES = 32


class Vault:
    """Encrypts and decrypts small secrets.

    Each `context` has its own key, so that a sealed value that is copied to another place (another
    table, another purpose) cannot be opened there.
    """

    def __init__(self, master_key: bytes | None) -> None:
        """`master_key` is the credential `master-key`: 64 hex digits. None: each use raises.

        Raises: ConfigError when it is not valid.
        """
        self._master_key = None if master_key is None else parse_key(master_key)
        #: Keys of fingerprints, by context: each webhook needs one, and making it takes 2 us.
        self._keys: dict[str, bytes] = {}

    @property
    def usable(self) -> bool:
        """Whether there is a master key."""
        return self._master_key is not None

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """Encrypt. Each call returns other bytes (a random nonce), 40 more than the secret has.

        Raises: ConfigError without a master key.
        """
        return bytes(self._box(context).encrypt(secret))

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Decrypt a result of `seal` for the same context.

        Raises: ConfigError without a master key; PermanentError when the bytes were changed, or
        sealed with another key or context.
        """
        box = self._box(context)
        from nacl.exceptions import CryptoError

        try:
            return bytes(box.decrypt(sealed))
        except (CryptoError, ValueError) as error:
            raise PermanentError(
                f"a sealed secret ({context}) cannot be opened with this master key",
                hint="if the credential master-key was replaced, restore it; else set a new secret",
            ) from error

    def can_open(self, sealed: bytes, *, context: str) -> bool:
        """Whether `open` would succeed."""
        try:
            self.open(sealed, context=context)
        except (ConfigError, PermanentError):
            return False
        return True

    def fingerprint(self, secret: bytes, *, context: str) -> bytes:
        """A keyed hash of 16 bytes: equal for equal secrets, so that a stored secret is found by
        one look-up. Without the key it reveals nothing. Needs no libsodium.

        Raises: ConfigError without a master key.
        """
        key = self._keys.get(context)
        if key is None:
            key = self._keys[context] = self._derive(f"fingerprint:{context}")
        return blake2b(secret, key=key, digest_size=16).digest()

    def _box(self, context: str) -> SecretBox:
        key = self._derive(context)
        from nacl.secret import SecretBox  # 12 ms and 3 MB

        return SecretBox(key)

    def _derive(self, context: str) -> bytes:
        if self._master_key is None:
            raise ConfigError(
                "the credential master-key is missing: secrets can be neither sealed nor opened",
                hint="if you have a copy of it, put it back; else `cordata credentials init`; then"
                " restart the service",
            )
        key = blake2b(
            context.encode(), key=self._master_key, digest_size=_KEY_BYTES, person=b"cordata"
        )
        return key.digest()


def parse_key(credential: bytes) -> bytes:
    """The 32 bytes of a master key in its file format, 64 hex digits. Raises: ConfigError.

    The format is not raw bytes, since editors and shells add or remove a line break at the end.
    """
    try:
        key = bytes.fromhex(credential.decode().strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(
            "the credential master-key must be 64 hex digits",
            hint="if you have a copy of it, put it back; else remove the file, then"
            " `cordata credentials init`",
        )
    return key


def new_key() -> bytes:
    """A new random master key in its file format: 64 hex digits."""
    return os.urandom(_KEY_BYTES).hex().encode()
