"""Makes a backup: copies the store, reads configuration and credentials, writes the directory."""

from __future__ import annotations

import platform
import re
import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cordata import __version__
from cordata.backup import archive, sqlite
from cordata.backup.archive import CONFIGURATION, CREDENTIALS, STORE, Draw, Manifest
from cordata.backup.owner import acting_as_owner
from cordata.backup.sealed import seal
from cordata.config import DEFAULT_FILE, Config, Document
from cordata.config.reader import DROP_INS, drop_in_files
from cordata.context_factory import read_vault, store_password
from cordata.errors import ConfigError, CordataError
from cordata.store import dialect_of
from cordata.store.migrate import require_in_use
from cordata.store.sqlite.connection import database_path
from cordata.systemd import Credentials
from cordata.vault import Vault

#: The administrator's units and drop-ins.
_UNITS = Path("/etc/systemd/system")
_PACKAGED_UNITS = Path("/usr/lib/systemd/system")
_UNIT_FILES = {".service", ".socket", ".target", ".timer", ".slice"}


def create(
    config: Config, document: Document, target: Path, *, passphrase: bytes | None, draw: Draw
) -> Manifest:
    """Write a backup to a new directory, whole or not at all. Nothing has to be stopped.

    `passphrase` seals the credentials; None leaves them out. Raises: CordataError.
    """
    # Root may read what the owner of the target may not.
    vault, password = read_vault(config), store_password(config)
    secrets = {} if passphrase is None else read_secrets(config)
    files = dict(configuration_files(document))
    try:
        with acting_as_owner(target.parent), archive.new_directory(target) as directory:
            manifest = replace(
                _copy_store(config, password, directory, draw),
                application=config.app.import_,
                master_key=fingerprint(vault),
            )
            for name, data in files.items():
                archive.write_file(directory / CONFIGURATION / name, data)
            if passphrase is not None:
                draw(None, "sealing the credentials")
                archive.write_file(directory / CREDENTIALS, seal(secrets, passphrase))
            return archive.finish(directory, manifest, draw)
    except OSError as error:
        raise CordataError(
            f"the backup cannot be written to {target}: {error.strerror}",
            hint="nothing is left of it",
        ) from error


def _copy_store(config: Config, password: str | None, directory: Path, draw: Draw) -> Manifest:
    dialect = dialect_of(config.store)
    store = directory / STORE[dialect]
    schema, pg_dump = "", 0
    if dialect == "sqlite":
        path = database_path(config.store.url, config.paths.state)
        sqlite.copy(path, store, draw)
        draw(None, "checking the copy")
        applied, database = sqlite.check(store), sqlite3.sqlite_version
    else:
        from cordata.backup import postgres

        with postgres.connected(config.store, password, config.paths.state) as server:
            applied, schema, pg_dump = postgres.copy(server, store, draw)
            database = str(server.major)
    if not applied:
        raise CordataError("there is nothing to copy: the store was never migrated")
    require_in_use(applied)  # no program takes such a backup
    return Manifest(
        format=archive.FORMAT,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        host=socket.gethostname(),
        cordata=__version__,
        python=platform.python_version(),
        application="",
        dialect=dialect,
        database=database,
        pg_dump=pg_dump,
        schema=schema,
        migrations=tuple(applied),
    )


def read_secrets(config: Config) -> dict[str, bytes]:
    """All credentials by name. Raises: ConfigError if there are none that can be read."""
    credentials = Credentials(config.paths.credentials)
    found = {name: credentials.read(name) for name in credentials.names()}
    secrets = {name: secret for name, secret in found.items() if secret is not None}
    if not secrets:
        raise ConfigError(
            f"there are no credentials in {credentials.directory} that this user can read",
            hint="run it as root; --without-credentials leaves them out on purpose",
        )
    return secrets


def fingerprint(vault: Vault) -> str:
    """Tells whether another master-key is the same one, and nothing else of it."""
    return vault.fingerprint(b"master-key", context="backup").hex() if vault.usable else ""


def configuration_files(document: Document) -> Iterator[tuple[str, bytes]]:
    """The configuration by path: the file, its drop-ins; on a server also the units' files that the
    administrator wrote.
    """
    if document.path is None:
        return
    paths = {document.path.name: document.path}
    for path in drop_in_files(document.path):
        paths[f"{DROP_INS}/{path.name}"] = path
    if document.path == DEFAULT_FILE:
        for path in _unit_files():
            paths[f"systemd/{path.relative_to(_UNITS)}"] = path
    for name, path in paths.items():
        yield name, path.read_bytes()


def _unit_files() -> Iterator[Path]:
    """Units of cordata in /etc, and drop-ins of those: what has the word in it."""
    for path in sorted(_UNITS.glob("*")):
        if path.suffix == ".d":
            unit = path.name.removesuffix(".d")
            names = {unit, re.sub(r"@.*\.", "@.", unit)}  # of an instance its template
            if any(_is_ours(where / name) for where in (_UNITS, _PACKAGED_UNITS) for name in names):
                yield from sorted(path.glob("*.conf"))
        elif path.suffix in _UNIT_FILES and not path.is_symlink() and _is_ours(path):
            yield path


def _is_ours(unit: Path) -> bool:
    try:
        return b"cordata" in unit.read_bytes()
    except OSError:
        return False
