"""Secrets as files: $CREDENTIALS_DIRECTORY under systemd, [paths] credentials otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from cordata.errors import ConfigError

_MAX_BYTES = 65_536
# LoadCredential=cordata:/etc/cordata/credentials gives each file of that directory as cordata_FILE
_PREFIX = "cordata_"


class Credentials:
    """A directory of secrets, one file each. A missing secret is None, not an error."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, name: str) -> bytes | None:
        """The secret without its trailing newline; None when there is no such file.

        Raises: ConfigError when the file is there and cannot be read, or is larger than 64 KiB.
        """
        if os.sep in name or name in ("", ".", ".."):
            raise ValueError(f"{name!r} is no name of a credential")
        for path in (self.directory / name, self.directory / (_PREFIX + name)):
            data = _read_file(path)
            if data is not None:
                return data.removesuffix(b"\n").removesuffix(b"\r")
        return None

    def text(self, name: str) -> str | None:
        """The secret as one line of UTF-8 text. Raises: ConfigError, also if it is not one line."""
        data = self.read(name)
        if data is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{self.directory / name}: not UTF-8 text") from None
        if any(c in text for c in "\n\r\0"):
            # A server would only report a wrong password.
            raise ConfigError(
                f"{self.directory / name}: more than one line, or a NUL character",
                hint="it has to hold the secret alone",
            )
        return text

    def names(self) -> list[str]:
        """Names of the existing secrets."""
        try:
            files = [p.name for p in self.directory.iterdir() if p.is_file() and p.name[0] != "."]
        except OSError:
            return []
        return sorted(name.removeprefix(_PREFIX) for name in files)


def _read_file(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        hint = "run it as root; a service's user has to be able to read it, and no other"
        raise ConfigError(f"{path}: {error.strerror}", hint=hint) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes")
    return data


def create(directory: Path, name: str, secret: bytes) -> bool:
    """Write a secret that only its owner can read. Returns False, changing nothing, if it exists.

    It gets its name when all of it is on the disk. Raises: ConfigError when it cannot be written.
    """
    path, new = directory / name, directory / f".{name}.{os.getpid()}"
    if os.path.lexists(path):  # also on a full disk
        return False
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(secret + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)
        finally:
            new.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        hint = "run it as root, or point [paths] credentials elsewhere"
        raise ConfigError(f"{path}: {error.strerror}", hint=hint) from error
    return True
