"""The runtime for an application's own commands: a Context without a role around it."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cordata.app import App
from cordata.config import Config, build, find_file, open_document
from cordata.context import Context
from cordata.errors import CordataError
from cordata.factory import open_context, read_vault, store_password
from cordata.store import store_class
from cordata.vault import Vault

#: By the directory of the credentials: what this process read as root, and may not read as the
#: user that it became.
_read_as_root: dict[Path, tuple[Vault, str | None]] = {}


@asynccontextmanager
async def connect(
    app: App, config: Config | str | Path | None = None, *, need_schema: bool = True
) -> AsyncIterator[Context]:
    """Open the store and the rest of a Context, for one command; close them at the end.

    `config` is a loaded configuration, or its file (None: CORDATA_CONFIG, else ./cordata.toml, else
    the default one); sections of the application are checked against `app`.

    Called by root while the state directory belongs to another user, the process becomes that
    user for good: after it read the credentials, before it touches any file there, so that no
    file of root's is left behind. Such a process may call it again. Raises: CordataError when there
    is no store, or its schema is not current (start the service first), unless `need_schema` is
    False; StoreUnavailable.
    """
    if not isinstance(config, Config):
        config = build(open_document(find_file(config)), app.settings_classes)
    vault, password = _secrets(config)
    store_class(config.store)  # root can read its driver wherever that lies
    become_owner(config.paths.state)
    async with open_context(
        config, app, vault=vault, password=password, make=not need_schema
    ) as ctx:
        if need_schema and not await ctx.schema_current():
            raise CordataError(
                "the store's schema is not current",
                hint="start primary.service (or `cordata server`), which migrates it",
            )
        yield ctx


def _secrets(config: Config) -> tuple[Vault, str | None]:
    """The vault and the store's password; a process that was root knows them from then."""
    directory = config.paths.credentials
    is_root = os.geteuid() == 0
    if not is_root and (kept := _read_as_root.get(directory)) is not None:
        return kept
    read = read_vault(config), store_password(config)
    if is_root:
        _read_as_root[directory] = read
    return read


def become_owner(directory: Path) -> None:
    """Root becomes the owner of the directory, groups and all; anyone else stays who they are."""
    if os.geteuid() != 0:
        return
    try:
        stat = directory.stat()
    except FileNotFoundError:
        return
    if stat.st_uid == 0:
        return
    try:
        groups = os.getgrouplist(pwd.getpwuid(stat.st_uid).pw_name, stat.st_gid)
    except KeyError:
        groups = [stat.st_gid]
    os.setgroups(groups)
    os.setresgid(stat.st_gid, stat.st_gid, stat.st_gid)
    os.setresuid(stat.st_uid, stat.st_uid, stat.st_uid)
    os.umask(0o077)
