"""Secrets at rest: libsodium's secretbox under keys derived from one master key."""

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
    """Seals and opens small secrets.

    Each `context` has its own key, so that a sealed value moved to another place (another table,
    another purpose) does not open there.
    """

    def __init__(self, master_key: bytes | None) -> None:
        """`master_key` is the credential `master-key`: 64 hex digits.

        None is allowed; then the first use says what is missing. Raises: ConfigError.
        """
        self._master_key = None if master_key is None else parse_key(master_key)
        self._boxes: dict[str, SecretBox] = {}
        #: Keys of fingerprints, by context.
        self._keys: dict[str, bytes] = {}

    @property
    def usable(self) -> bool:
        """Whether there is a master key."""
        return self._master_key is not None

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """Encrypt; every call gives other bytes (a random nonce), 40 longer than the secret.

        Raises: ConfigError without a master key.
        """
        return bytes(self._box(context).encrypt(secret))

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Decrypt what `seal` gave for the same context.

        Raises: ConfigError without a master key; PermanentError when the bytes were changed, or
        sealed with another key or for another context.
        """
        box = self._box(context)
        from nacl.exceptions import CryptoError

        try:
            return bytes(box.decrypt(sealed))
        except (CryptoError, ValueError) as error:
            raise PermanentError(
                f"a sealed secret ({context}) does not open with this master key",
                hint="was the credential master-key replaced? restore it, or set the secret anew",
            ) from error

    def fingerprint(self, secret: bytes, *, context: str) -> bytes:
        """A keyed hash of 16 bytes: equal for equal secrets, so that a stored secret is found by
        one look-up; it tells nothing without the key. Needs no libsodium.

        Raises: ConfigError without a master key.
        """
        key = self._keys.get(context)
        if key is None:
            key = self._keys[context] = self._derive(f"fingerprint:{context}")
        return blake2b(secret, key=key, digest_size=16).digest()

    def _box(self, context: str) -> SecretBox:
        box = self._boxes.get(context)
        if box is None:
            box = self._boxes[context] = self._new_box(context)
        return box

    def _new_box(self, context: str) -> SecretBox:
        key = self._derive(context)
        from nacl.secret import SecretBox  # 12 ms and 3 MB, not before there is a secret

        return SecretBox(key)

    def _derive(self, context: str) -> bytes:
        if self._master_key is None:
            raise ConfigError(
                "the credential master-key is missing; no secret can be sealed or opened",
                hint="create it once with `cordata credentials init`, then restart the service",
            )
        key = blake2b(
            context.encode(), key=self._master_key, digest_size=_KEY_BYTES, person=b"cordata"
        )
        return key.digest()


def parse_key(credential: bytes) -> bytes:
    """The 32 bytes of a master key file, 64 hex digits. Raises: ConfigError.

    Not raw bytes: a key that happens to end in a line break would lose it.
    """
    try:
        key = bytes.fromhex(credential.decode().strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(
            "the credential master-key must be 64 hex digits",
            hint="`cordata credentials init` makes one",
        )
    return key


def new_key() -> bytes:
    """A fresh master key as its file holds it: 64 hex digits."""
    return os.urandom(_KEY_BYTES).hex().encode()
