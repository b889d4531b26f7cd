"""Credentials under a passphrase: argon2id makes a key of it, libsodium's secretbox seals them."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cordata.errors import CordataError

_KEY_BYTES = 32
#: What this program is ready to spend on a file that names its own costs.
_MAX_OPS, _MAX_MEM_BYTES = 20, 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sealed:
    """The file: JSON, bytes in base64."""

    kdf: str
    ops: int
    mem_bytes: int
    salt: bytes
    box: bytes


def seal(secrets: Mapping[str, bytes], passphrase: bytes) -> bytes:
    """The content of the file. Takes a second and 256 MiB, as it will for everyone who guesses."""
    from nacl.pwhash import argon2id
    from nacl.secret import SecretBox

    plain = {name: base64.b64encode(secret).decode() for name, secret in secrets.items()}
    salt = os.urandom(argon2id.SALTBYTES)
    ops, mem_bytes = argon2id.OPSLIMIT_MODERATE, argon2id.MEMLIMIT_MODERATE
    key = argon2id.kdf(_KEY_BYTES, passphrase, salt, opslimit=ops, memlimit=mem_bytes)
    box = bytes(SecretBox(key).encrypt(msgspec.json.encode(plain)))
    sealed = _Sealed(kdf="argon2id", ops=ops, mem_bytes=mem_bytes, salt=salt, box=box)
    return msgspec.json.encode(sealed) + b"\n"


def unseal(data: bytes, passphrase: bytes) -> dict[str, bytes]:
    """The secrets by name. Raises: CordataError for another passphrase, and a file that is none."""
    from nacl.exceptions import CryptoError
    from nacl.pwhash import argon2id
    from nacl.secret import SecretBox

    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if sealed.kdf != "argon2id" or sealed.ops > _MAX_OPS or sealed.mem_bytes > _MAX_MEM_BYTES:
            raise ValueError(f"{sealed.kdf}, {sealed.ops}, {sealed.mem_bytes}")
        key = argon2id.kdf(
            _KEY_BYTES, passphrase, sealed.salt, opslimit=sealed.ops, memlimit=sealed.mem_bytes
        )
        box = SecretBox(key)
    except (msgspec.MsgspecError, ValueError, TypeError, CryptoError) as error:
        raise CordataError(f"the sealed credentials cannot be read: {error}") from error
    try:
        plain = box.decrypt(sealed.box)
    except (CryptoError, ValueError):
        raise CordataError(
            "the passphrase does not open the backup's credentials",
            hint="--passphrase-file names the right one; --without-credentials leaves them out",
        ) from None
    secrets = msgspec.json.decode(plain, type=dict[str, str])
    return {name: base64.b64decode(secret) for name, secret in secrets.items()}
