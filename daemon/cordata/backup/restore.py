"""Restores a backup: everything is checked before anything is changed.

    manifest, checksums -> versions -> services stopped -> target free -> passphrase
      -> store built beside its place -> credentials -> store moved there (COMMIT)

A restore lets the term of the primary's lease jump (`archive.TERMS`).
"""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cordata import __version__
from cordata.backup import archive, sqlite
from cordata.backup.archive import CONFIGURATION, CREDENTIALS, STORE, Draw, Manifest
from cordata.backup.create import configuration_files, fingerprint
from cordata.backup.owner import acting_as_owner
from cordata.backup.sealed import unseal
from cordata.broker.factory import is_store
from cordata.config import Config, Document
from cordata.context_factory import store_password
from cordata.errors import ConfigError, CordataError, Unclear
from cordata.store import Chain, dialect_of
from cordata.store.migrate import SchemaError, load, pending
from cordata.store.sqlite.connection import database_path
from cordata.systemd import Credentials
from cordata.systemd.credentials import create as create_credential
from cordata.systemd.hint import has_units, stop_hint
from cordata.vault import MASTER_KEY, Vault

#: Units whose processes use the store, and the socket that starts one of them.
_UNITS = (
    *("http.socket", "primary.service", "worker@*.service", "job@*.service"),
    "cordata-backup.service",
)
_USER = "cordata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where a backup is restored."""

    config: Config
    document: Document
    #: The migrations of the program.
    chains: Sequence[Chain]

    @property
    def is_server(self) -> bool:
        """Whether its units use this configuration."""
        return has_units(self.document.path)


@dataclass(slots=True, kw_only=True)
class Restored:
    """What was done, or would be."""

    manifest: Manifest
    #: Where the old store and the old master-key are now; empty: there was none.
    old_store: str = ""
    old_key: str = ""
    #: Names of credentials that were written, and of those that differ here and stay.
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    #: Files of the configuration that are not as in the backup.
    differing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def restore(
    host: Host,
    directory: Path,
    *,
    passphrase: bytes | None,
    replace: bool,
    dry_run: bool,
    draw: Draw,
) -> Restored:
    """Check a backup and this host, then put the store and the credentials in place.

    `passphrase` opens the credentials, if the backup has some; None leaves them out. `replace`
    moves aside what is there. `dry_run`: only the checks. Raises: CordataError, of which
    SchemaError when the program is older than the backup; the store is as it was then, except
    after Unclear.
    """
    manifest = archive.read_manifest(directory)
    archive.check_files(directory, manifest, draw)
    done = Restored(manifest=manifest)
    _check_versions(host, manifest)
    if host.is_server:
        check_units()
    secrets = None
    if passphrase is not None and CREDENTIALS in manifest.files:
        with (directory / CREDENTIALS).open("rb") as file:
            secrets = unseal(file.read(), passphrase)
    replace_key = _check_master_key(host, manifest, secrets, replace=replace, done=done)
    done.differing = _differing(host, directory, manifest)
    now = datetime.now(UTC)
    aside = f".before-restore-{now:%Y%m%dT%H%M%SZ}"
    if not is_store(host.config.broker):
        done.warnings.append(
            "Redis may hold events that the restored store does not know: empty it before the start"
        )
    try:
        with _store(host, directory, manifest, aside, replace=replace, draw=draw) as begin:
            if dry_run:
                return done
            with begin() as moved:
                if secrets is not None:
                    _put_credentials(host, secrets, aside, replace_key=replace_key, done=done)
                done.old_store = moved or ""
    except Unclear as error:  # the store may be the backup's, so its master-key stays
        if done.old_key:
            error.hint = f"{error.hint}; the old master-key is {done.old_key}"
        raise
    except BaseException as error:
        _put_key_back(host, done)
        if isinstance(error, OSError):
            where = f"{error.filename or host.config.paths.state}: {error.strerror}"
            raise CordataError(f"the restore failed: {where}") from error
        raise
    return done


def _check_versions(host: Host, manifest: Manifest) -> None:
    """Raises: CordataError when this program or its store cannot take the backup."""
    dialect = dialect_of(host.config.store)
    if manifest.dialect != dialect:
        names = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
        raise CordataError(
            f"the backup is of {names[manifest.dialect]}, [store] url here is {names[dialect]}",
            hint="set [store] url to a store of the same kind; `cordata db copy` copies it to the"
            " other one",
        )
    try:
        _, newer = pending(load(host.chains, dialect), manifest.migrations)
    except ConfigError as error:
        raise type(error)(
            f"this program (cordata {__version__}) cannot run the backup's schema"
            f" (cordata {manifest.cordata}): {error}",
            hint=error.hint,
        ) from error
    if newer:
        # It runs beside the newer one during an upgrade, but does not know all that its rows say.
        raise SchemaError(
            f"the backup's schema is newer than this program (cordata {__version__}):"
            f" {', '.join(map(str, newer))}",
            hint=f"install the version that made the backup (cordata {manifest.cordata},"
            f" {manifest.application or 'no application'}), or a newer one",
        )
    known = {chain.component for chain in host.chains}
    foreign = {one.component for one in manifest.migrations} - known
    if foreign:
        raise CordataError(
            f"the backup has tables of {', '.join(sorted(foreign))}, which the application here"
            f" does not have (the backup's is {manifest.application or 'not configured'})",
            hint="set [app] import to the backup's application, or give --app",
        )


def check_units() -> None:
    """Raises: CordataError when a unit of this host runs, or would be started by a connection."""
    command = ["systemctl", "list-units", "--plain", "--no-legend", "--no-pager"]
    command.append("--state=active,activating,reloading,deactivating")
    done = subprocess.run([*command, *_UNITS], capture_output=True, text=True, check=False)
    running = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    if running:
        raise CordataError(
            f"the service is running: {', '.join(running)}",
            hint=stop_hint(units=True),
        )


def _check_master_key(
    host: Host,
    manifest: Manifest,
    secrets: dict[str, bytes] | None,
    *,
    replace: bool,
    done: Restored,
) -> bool:
    """Whether this host's master-key is replaced. Raises: CordataError when it may not be."""
    here = Credentials(host.config.paths.credentials).read(MASTER_KEY)
    if secrets is not None:
        if here is None or MASTER_KEY not in secrets or here == secrets[MASTER_KEY]:
            return False
        if not replace:
            raise CordataError(
                "this host has another master-key than the backup",
                hint="--replace moves it aside, and deletes nothing",
            )
        return True
    if manifest.master_key and fingerprint(Vault(here)) != manifest.master_key:
        done.warnings.append(
            "the master-key of this host is not that of the backup: the sealed secrets in the store"
            " cannot be opened until it is the same"
        )
    return False


def _differing(host: Host, directory: Path, manifest: Manifest) -> list[str]:
    """The files of the configuration that this host has not, or has with other content."""
    here = dict(configuration_files(host.document))
    saved = (name for name in manifest.files if name.startswith(f"{CONFIGURATION}/"))
    return [
        name
        for name in saved
        if here.get(name.removeprefix(f"{CONFIGURATION}/")) != (directory / name).read_bytes()
    ]


@contextmanager
def _store(
    host: Host, directory: Path, manifest: Manifest, aside: str, *, replace: bool, draw: Draw
) -> Iterator[Callable[[], AbstractContextManager[str | None]]]:
    """Check the copy of the store, and the place it goes to; yields what begins the restore."""
    config, source = host.config, directory / STORE[manifest.dialect]
    now_s = int(time.time())
    if manifest.dialect == "sqlite":
        path = database_path(config.store.url, config.paths.state)
        draw(None, "checking the database")
        sqlite.check(source)
        sqlite.check_target(path, config.paths.state, replace=replace)

        def begin() -> AbstractContextManager[str | None]:
            _make_state(path.parent, host)
            sha256 = manifest.files[STORE["sqlite"]].sha256
            return sqlite.restoring(
                source, sha256, path, config.paths.state, aside, now_s=now_s, draw=draw
            )

        yield begin
        return
    from cordata.backup import postgres

    with postgres.connected(config.store, store_password(config), config.paths.state) as server:
        postgres.check(source, server.major, manifest.pg_dump)
        made_on = int(manifest.database) if manifest.database.isdecimal() else 0
        postgres.check_target(server, manifest.schema, made_on, replace=replace)
        yield lambda: postgres.restoring(
            server, source, manifest, aside.removeprefix("."), now_s=now_s, draw=draw
        )


def _make_state(directory: Path, host: Host) -> None:
    """On a host whose service never ran there is no state directory yet."""
    if directory.is_dir():
        return
    directory.mkdir(mode=0o700)
    if host.is_server and os.geteuid() == 0:
        user = pwd.getpwnam(_USER)
        os.chown(directory, user.pw_uid, user.pw_gid)


def _put_credentials(
    host: Host, secrets: dict[str, bytes], aside: str, *, replace_key: bool, done: Restored
) -> None:
    """Write what this host has not. What it has stays (they may be of its own database and mail
    server), but for the master-key, which belongs to the store.
    """
    directory = host.config.paths.credentials
    with acting_as_owner(directory):
        for name, secret in secrets.items():
            if name == MASTER_KEY and replace_key:
                _replace_key(directory, secret, aside, done)
            elif create_credential(directory, name, secret):
                done.written.append(name)
            elif Credentials(directory).read(name) != secret:
                done.kept.append(name)
        archive.sync(directory)


def _put_key_back(host: Host, done: Restored) -> None:
    """After a failure the old store has its own master-key again."""
    if done.old_key:
        directory = host.config.paths.credentials
        with acting_as_owner(directory):
            os.rename(done.old_key, directory / MASTER_KEY)


def _replace_key(directory: Path, secret: bytes, aside: str, done: Restored) -> None:
    # Beside the directory: services get each file in it.
    old = directory.with_name(f"{MASTER_KEY}{aside}")
    new = directory.with_name(f"{MASTER_KEY}.restoring")
    new.unlink(missing_ok=True)
    archive.write_file(new, secret + b"\n")
    archive.write_file(old, (directory / MASTER_KEY).read_bytes())
    done.old_key = str(old)
    for path in (old, new):
        archive.sync(path)
    os.rename(new, directory / MASTER_KEY)
    archive.sync(directory.parent)
    done.written.append(MASTER_KEY)
