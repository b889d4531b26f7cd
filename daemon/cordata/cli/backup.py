"""`cordata backup DIR` and `cordata restore DIR`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from cordata.app_loader import load
from cordata.backup import archive
from cordata.backup.archive import CREDENTIALS, Manifest, read_manifest
from cordata.backup.create import create
from cordata.backup.restore import Host, Restored
from cordata.backup.restore import restore as restore_backup
from cordata.cli.operator import Operator, operator_options
from cordata.cli.options import app_option
from cordata.config import Config, build, find_file, open_document
from cordata.context_factory import chains_of
from cordata.errors import ConfigError
from cordata.systemd import Credentials
from cordata.systemd.hint import start_hint
from cordata.terminal import Command, ProgressBar, add_options, show_json

#: The credential that holds the passphrase for `cordata-backup.service`.
_PASSPHRASE = "backup-passphrase"
_LEFT_OUT = """the backup has no credentials. Without the master-key of this host the sealed secrets
in the store (of webhooks, for example) cannot be opened: keep a copy of it"""
_credential_options = add_options(
    click.option(
        "--passphrase-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"Passphrase of the credentials.  [default: the credential {_PASSPHRASE}, else asked]",
    ),
    click.option(
        "--without-credentials", is_flag=True, help="Leave the credentials out, master-key and all."
    ),
)


@click.command(
    cls=Command,
    examples="""
        cordata backup /root/cordata-backup
        cordata backup --keep 14 /var/backups/cordata
        cordata backup --without-credentials --json /root/data-only
    """,
    exit_codes="""
        0 the backup is complete, 1 it failed and nothing is left of it, 2 wrong usage, 78 the
        configuration cannot be used, or there are no credentials or no passphrase, 130 ended by
        Ctrl-C
    """,
)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keep",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Make a backup with the date for its name in DIR, then remove all such but the newest N.",
)
@_credential_options
@operator_options
def backup(
    operator: Operator,
    directory: Path,
    keep: int | None,
    passphrase_file: Path | None,
    without_credentials: bool,
) -> int:
    """Copy store, configuration and credentials to a new directory DIR, while the service runs.

    All that was acknowledged before it began is in it. The credentials are sealed with a
    passphrase. DIR gets its name when it is complete; a directory that is not empty is refused.
    Sessions of the pool and the application's own files are not copied. PostgreSQL takes its
    programs pg_dump and pg_restore (package postgresql-client).
    """
    os.umask(0o077)
    document = open_document(find_file(operator.config))
    config = operator.with_state_dir(build(document, None))
    target = directory.absolute()
    if keep is not None:
        archive.make_parent(target)
        target = archive.dated(target, datetime.now(UTC))
    archive.check_target(target)
    passphrase = None
    if not without_credentials:
        passphrase = _passphrase(config, passphrase_file, twice=True)
    with ProgressBar() as bar:
        manifest = create(config, document, target, passphrase=passphrase, draw=bar.draw)
    pruned = archive.prune(target.parent, keep) if keep is not None else []
    _print_backup(operator, target, manifest, pruned, sealed=passphrase is not None)
    return 0


def _print_backup(
    operator: Operator, target: Path, manifest: Manifest, pruned: list[Path], *, sealed: bool
) -> None:
    size = sum(one.bytes for one in manifest.files.values())
    record = {
        "directory": str(target),
        "bytes": size,
        "credentials": "sealed" if sealed else "left out",
        "removed": [str(one) for one in pruned],
    }
    if not sealed:
        click.echo(f"warning: {' '.join(_LEFT_OUT.split())}", err=True)
    removed = f"; removed {len(pruned)} older" if pruned else ""
    operator.print_result(
        record, f"backup {target}: {len(manifest.files)} files, {size:,} bytes{removed}"
    )


@click.command(
    cls=Command,
    examples="""
        cordata restore --dry-run /root/cordata-backup
        cordata restore /root/cordata-backup
        cordata restore --replace --passphrase-file /root/passphrase /root/cordata-backup
    """,
    exit_codes="""
        0 restored, or --dry-run found nothing in the way; 1 refused or failed, 2 wrong usage, 78
        program and backup do not fit together, or the configuration cannot be used, 130 ended by
        Ctrl-C. Unless it is 0, the store is as it was
    """,
)
@click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--dry-run", is_flag=True, help="Check backup and host; change nothing.")
@click.option(
    "--replace", is_flag=True, help="Move the store and the master-key that are there aside."
)
@_credential_options
@app_option
@operator_options
def restore(
    operator: Operator,
    directory: Path,
    dry_run: bool,
    replace: bool,
    passphrase_file: Path | None,
    without_credentials: bool,
    app: str | None,
) -> int:
    """Put the store of a backup, and its credentials, in place. The service has to be stopped.

    First everything is checked: checksums, versions, the copy itself, the passphrase, whether the
    service runs and whether there is a store. The configuration of this host says where the store
    goes; that of the backup is not installed. Of the credentials, those that this host has stay,
    but for the master-key.
    """
    os.umask(0o077)
    loaded = load(operator.config, app)
    config = operator.with_state_dir(loaded.config)
    host = Host(config=config, document=loaded.document, chains=chains_of(loaded.app))
    passphrase = None
    if CREDENTIALS in read_manifest(directory).files and not without_credentials:
        passphrase = _passphrase(config, passphrase_file, twice=False)
    with ProgressBar() as bar:
        done = restore_backup(
            host,
            directory.absolute(),
            passphrase=passphrase,
            replace=replace,
            dry_run=dry_run,
            draw=bar.draw,
        )
    if operator.json:
        show_json(asdict(done) | {"dry_run": dry_run})
    else:
        _print_restored(host, done, directory, dry_run=dry_run)
    return 0


def _print_restored(host: Host, done: Restored, directory: Path, *, dry_run: bool) -> None:
    for warning in done.warnings:
        click.echo(f"warning: {warning}", err=True)
    made = f"of {done.manifest.created_at} from {done.manifest.host}"
    if dry_run:
        click.echo(f"the backup {made} is whole, and can be restored here")
    else:
        click.echo(f"restored the backup {made}")
    for old in filter(None, (done.old_store, done.old_key)):
        click.echo(f"moved aside: {old}")
    for name in done.kept:
        click.echo(f"credential left as it is here: {name}")
    if done.differing:
        click.echo(f"not as in the backup: {', '.join(done.differing)}")
        if config_file := host.document.path:
            click.echo(f"  see: diff -r {directory}/configuration {config_file.parent}")
    if host.is_server and not dry_run:
        click.echo(f"next: {start_hint(units=True)}")


def _passphrase(config: Config, file: Path | None, *, twice: bool) -> bytes:
    """From a file, the credential or the terminal. Raises: ConfigError when there is none."""
    if file is not None:
        found = file.read_bytes().rstrip(b"\r\n")
    else:
        found = Credentials(config.paths.credentials).read(_PASSPHRASE) or b""
    if not found and file is None and sys.stdin.isatty():
        text: str = click.prompt(
            "Passphrase of the credentials", hide_input=True, confirmation_prompt=twice, err=True
        )
        found = text.encode()
    if not found:
        raise ConfigError(
            "there is no passphrase for the credentials",
            hint=f"--passphrase-file FILE, the credential {_PASSPHRASE}, or a terminal to ask at;"
            " or --without-credentials",
        )
    return found
