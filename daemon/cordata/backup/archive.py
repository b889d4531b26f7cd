"""The directory of a backup: files, and a manifest with their sizes and checksums.

    DIR/manifest.json        versions, and every other file
        store.db             a SQLite database; of PostgreSQL store.dump, pg_dump's custom format
        credentials.sealed   under a passphrase; not there if it was made without credentials
        configuration/       cordata.toml, conf.d/, systemd/ (the administrator's units, drop-ins)

It is written as `.cordata-backup-*` beside DIR and gets its name when all of it is on disk.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from cordata.backup.owner import acting_as_owner
from cordata.errors import CordataError
from cordata.store.migrate import MigrationId

MANIFEST = "manifest.json"
CREDENTIALS = "credentials.sealed"
CONFIGURATION = "configuration"
#: The file of the store, by dialect.
STORE = {"sqlite": "store.db", "postgres": "store.dump"}
#: Raised when older programs cannot restore what newer ones write.
FORMAT = 1

_PARTIAL = ".cordata-backup-"
_DATED = re.compile(r"\d{8}T\d{6}Z")
_PIECE_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 1 << 24

#: A restore raises the term of the primary's lease by this number, or to the seconds since 1970 if
#: that is more. Fewer terms than that have begun since the backup, so a primary of that time, which
#: may still run somewhere, has an older term and cannot write.
TERMS = 1000

#: Is told the share that is done (None: unknown), 0 to 1, and what.
Draw = Callable[[float | None, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Size and checksum of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a backup is a copy of, and made with."""

    format: int
    #: ISO 8601, UTC.
    created_at: str
    host: str
    #: Versions of cordata and Python.
    cordata: str
    python: str
    #: [app] import; empty: none was configured.
    application: str
    #: "sqlite" or "postgres".
    dialect: str
    #: Of SQLite, or of the PostgreSQL server.
    database: str
    #: PostgreSQL: major version of pg_dump, and the schema that holds the tables.
    pg_dump: int = 0
    schema: str = ""
    #: As they were applied to the store.
    migrations: tuple[MigrationId, ...] = ()
    #: A keyed hash that tells a right master-key from a wrong one; empty: there was none.
    master_key: str = ""
    #: By path within the directory.
    files: Mapping[str, File] = field(default_factory=dict)


def private_file(path: Path) -> int:
    """Make a file of mode 0600, and directories of mode 0700 on its way; its descriptor."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def write_file(path: Path, data: bytes) -> None:
    """Make a private file with this content."""
    with open(private_file(path), "wb") as file:
        file.write(data)


def make_parent(directory: Path) -> None:
    """Make the directory of all backups, if it is missing. Raises: CordataError."""
    try:
        with acting_as_owner(directory):
            directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CordataError(f"{directory} cannot be created: {error.strerror}") from error


def dated(parent: Path, now: datetime) -> Path:
    """A free name for a backup of this second, or of the next one that has none."""
    while (target := parent / f"{now:%Y%m%dT%H%M%SZ}").exists():
        now += timedelta(seconds=1)
    return target


def check_target(target: Path) -> None:
    """Raises: CordataError if a backup cannot get this name."""
    if not target.parent.is_dir():
        raise CordataError(f"{target.parent} is no directory", hint="make it first")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise CordataError(f"{target} exists and is no directory")
    if target.is_dir() and any(target.iterdir()):
        raise CordataError(
            f"{target} is not empty",
            hint="name a new directory; with --keep N, the directory of all backups",
        )


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A private directory to write into, which becomes `target` at the end of the block.

    Whole or not at all: what a killed process left is removed by the next backup beside it.
    Raises: CordataError when the target is not free, or another backup is written beside it.
    """
    check_target(target)
    parent = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CordataError(f"another backup is being written to {target.parent}") from None
        for left in target.parent.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=target.parent))
        try:
            yield building
            os.rename(building, target)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        os.fsync(parent)
    finally:
        os.close(parent)


def finish(directory: Path, manifest: Manifest, draw: Draw) -> Manifest:
    """Bring everything to the disk, and write the manifest with the checksums of all files."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    files = {str(path.relative_to(directory)): _digest(path, draw, sync=True) for path in paths}
    complete = replace(manifest, files=files)
    data = msgspec.json.format(msgspec.json.encode(complete), indent=2)
    write_file(directory / MANIFEST, data + b"\n")
    _digest(directory / MANIFEST, draw, sync=True)
    for folder in {directory, *(path.parent for path in paths)}:
        sync(folder)
    return complete


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a backup. Raises: CordataError when there is none that can be used."""
    path = directory / MANIFEST
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_MANIFEST_BYTES)
        found = msgspec.json.decode(data)
        known = found.get("format") if isinstance(found, dict) else None
        if known != FORMAT:
            raise CordataError(
                f"{path}: format {known!r} is not known to this version of cordata, which reads"
                f" format {FORMAT}",
                hint="restore it with the version that made it, or a newer one",
            )
        manifest = msgspec.convert(found, Manifest)
    except FileNotFoundError:
        raise CordataError(
            f"{directory} is no backup: it has no {MANIFEST}", hint="name the directory of one"
        ) from None
    except OSError as error:
        raise CordataError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise CordataError(f"{path} is damaged: {error}") from error
    names = map(Path, manifest.files)
    if manifest.dialect not in STORE or any(n.is_absolute() or ".." in n.parts for n in names):
        raise CordataError(f"{path} is damaged: no such dialect, or a file outside")
    if STORE[manifest.dialect] not in manifest.files:
        raise CordataError(f"{path} is damaged: it names no {STORE[manifest.dialect]}")
    return manifest


def check_files(directory: Path, manifest: Manifest, draw: Draw) -> None:
    """Compare all files with the manifest. Raises: CordataError that names those that differ."""
    problems = []
    for name, said in manifest.files.items():
        try:
            found = _digest(directory / name, draw)
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
            continue
        if found.bytes != said.bytes:
            problems.append(f"{name} has {found.bytes:,} bytes, not {said.bytes:,}")
        elif found.sha256 != said.sha256:
            problems.append(f"{name} has another checksum")
    if problems:
        raise CordataError(
            f"the backup {directory} is damaged: {'; '.join(problems)}",
            hint="nothing was changed; take another backup",
        )


def _digest(path: Path, draw: Draw, *, sync: bool = False) -> File:
    """Size and checksum of a file; with `sync` it is on disk then."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            done += len(piece)
            draw(min(1.0, done / max(1, status.st_size)), f"checksum of {path.name}")
    return File(bytes=done, sha256=digest.hexdigest())


def sync(path: Path) -> None:
    """Bring a file to the disk, or the names in a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def prune(parent: Path, keep: int) -> list[Path]:
    """Remove all backups with a date for a name but the newest `keep`; those that were removed.

    Raises: CordataError when one cannot be removed.
    """
    try:
        with acting_as_owner(parent):
            found = sorted(one for one in parent.iterdir() if _DATED.fullmatch(one.name))
            old = [one for one in found if (one / MANIFEST).is_file()][:-keep]
            for one in old:
                # Renamed first, so that a crash leaves nothing that looks like a backup.
                left = one.with_name(f"{_PARTIAL}{one.name}")
                os.rename(one, left)
                # Another backup may remove it at the same time.
                shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise CordataError(
            f"the backup is complete, but older ones in {parent} cannot be removed:"
            f" {error.strerror}"
        ) from error
    return old
