"""Opens a Context for an application's own commands, outside of a role such as worker."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cordata.app import App
from cordata.config import Config, build, find_file, open_document
from cordata.context import Context
from cordata.context_factory import open_context, read_vault, store_password
from cordata.errors import CordataError
from cordata.store import store_class
from cordata.vault import Vault

#: Directory of credentials -> the secrets that this process read as root. It cannot read them again
#: after it has changed its user.
_read_as_root: dict[Path, tuple[Vault, str | None]] = {}


@asynccontextmanager
async def connect(
    app: App, config: Config | str | Path | None = None, *, need_schema: bool = True
) -> AsyncIterator[Context]:
    """Open the store and the rest of a Context, for one command; close them at the end.

    `config` is a loaded configuration, or its file (None: CORDATA_CONFIG, else ./cordata.toml, else
    the default one); the application's sections are checked against `app`.

    If root calls it and the state directory belongs to another user, the process becomes that user
    for good: after it has read the credentials, and before it touches a file there, so that it
    creates no files of root. It may call this again later. Raises: CordataError when there is no
    store or its schema is not current (start the service first), unless `need_schema` is False;
    StoreUnavailable.
    """
    if not isinstance(config, Config):
        config = build(open_document(find_file(config)), app.settings_classes)
    vault, password = _secrets(config)
    store_class(config.store)  # import the driver as root: the other user may not read its files
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
    """The vault and the store's password, from `_read_as_root` if this process was root."""
    directory = config.paths.credentials
    is_root = os.geteuid() == 0
    if not is_root and (secrets := _read_as_root.get(directory)) is not None:
        return secrets
    read = read_vault(config), store_password(config)
    if is_root:
        _read_as_root[directory] = read
    return read


def become_owner(directory: Path) -> None:
    """Change a root process to the user, groups and HOME of the directory's owner, and its umask
    to 077.

    Does nothing for another user, or when root owns the directory or there is none.
    """
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
    os.environ["HOME"] = home_of(stat.st_uid)
    os.umask(0o077)


def home_of(uid: int) -> str:
    """HOME of a process of this user. Libraries look for a user's files there: libpq gives up a TLS
    connection if it may not look for a certificate in ~/.postgresql, as in the home of root.
    """
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"
