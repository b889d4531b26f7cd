"""cordata.toml to frozen sections; every problem of the file is named in one ConfigError."""

from __future__ import annotations

import os
import pwd
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from cordata.config.bounds import complaint, order_complaints
from cordata.config.convert import Unfit, convert, describe, is_section
from cordata.config.pool import OF_ONE_POOL, PoolConfig, pool_complaints
from cordata.config.sections import AppConfig, Config, PathsConfig, WorkerConfig
from cordata.errors import ConfigError
from cordata.log import frames

DEFAULT_FILE = Path("/etc/cordata/cordata.toml")
_MAX_BYTES = 1_048_576


def key_of(name: str) -> str:
    """The TOML key of a field: `import_` is `import` in the file."""
    return name.rstrip("_")


@dataclass(slots=True)
class Document:
    """A parsed file, not yet checked, and the problems found in it so far."""

    #: None: there is no file, everything has its default.
    path: Path | None
    tables: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: `section.key` of everything the file sets.
    given: set[str] = field(default_factory=set)

    @property
    def base(self) -> Path:
        """Where relative paths start: the directory of the file."""
        return self.path.parent if self.path else Path.cwd()

    def complain(self, section: str, key: str, text: str) -> None:
        """Note a problem; all are raised together at the end."""
        where = f"[{section}] {key}: " if key else f"[{section}]: "
        self.problems.append(f"{self.path or 'defaults'}: {where}{text}")


def find_file(option: str | Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """--config, else $CORDATA_CONFIG, else ./cordata.toml, else the default file if there is one.

    Raises: ConfigError when a file was named and does not exist, and when another user may change
    ./cordata.toml or what lies beside it.
    """
    named = option or environ.get("CORDATA_CONFIG")
    if named:
        path = Path(named).absolute()
        if not path.is_file():
            raise ConfigError(f"{path}: no such file", hint="check --config or CORDATA_CONFIG")
        return path
    if os.path.isfile(DEFAULT_FILE.name):
        path = Path(DEFAULT_FILE.name).absolute()
        _check_trust(path)
        return path
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _check_trust(path: Path) -> None:
    """A file that nobody named is read only where no other user but root may change it.

    It names code that is imported, often from beside it. Without this check, whoever may write to a
    directory has their code run by each user, root above all, who calls a command there. Only the
    group of this process may write, too: with umask 002 each user has one of their own. A link
    counts as a file: its target may be anybody's, but not what lies beside the link. Raises:
    ConfigError.
    """
    for place, found in ((path, path.lstat()), (path, path.stat()), (path.parent, os.stat("."))):
        may_write = 0 if stat.S_ISLNK(found.st_mode) else found.st_mode
        if found.st_uid not in (0, os.geteuid()):
            why = f"{place} belongs to {_user(found.st_uid)}"
        elif may_write & stat.S_IWOTH:
            why = f"every user may write to {place}"
        elif may_write & stat.S_IWGRP and found.st_gid != os.getegid():
            why = f"a group of users may write to {place}"
        else:
            continue
        raise ConfigError(
            f"{path} was not named and is not read: {why}",
            hint=f"--config {path} if you trust it, or --config with another file",
        )


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


def open_document(path: Path | None) -> Document:
    """Read and parse the file; None gives an empty document. Raises: ConfigError."""
    if path is None:
        return Document(path=None)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes")
        return Document(path=path, tables=tomllib.loads(data.decode()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def read_app(document: Document) -> AppConfig:
    """[app] alone: what has to be imported before the rest can be checked. Raises: ConfigError."""
    section = _section(document, "app", AppConfig)
    if document.problems:
        raise ConfigError(*document.problems)
    return section  # type: ignore[no-any-return]


def build(
    document: Document,
    settings: Mapping[str, type[Any]] | None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The checked configuration.

    `settings` are the section types the application declares; None when it was not imported:
    then sections that are not the runtime's are left unchecked. Raises: ConfigError with all
    problems.
    """
    document.problems.clear()
    document.given.clear()
    kinds = {name: kind for name, kind in get_type_hints(Config).items() if is_section(kind)}
    sections = {name: _section(document, name, kind) for name, kind in kinds.items()}
    own = {name: _section(document, name, kind) for name, kind in (settings or {}).items()}
    workers = _worker_overrides(document, sections["worker"])
    pools = _named_pools(document, sections["pool"])
    if settings is not None:
        for name in document.tables:
            if name not in kinds and name not in settings:
                hint = nearest(name, [*kinds, *settings])
                document.problems.append(
                    f"{document.path}: [{name}]: unknown section; the nearest known is [{hint}]"
                )
    if document.problems:
        raise ConfigError(*document.problems, hint="`cordata config show` prints every known key")
    config = Config(**sections, workers=workers, pools=pools, settings=own)
    return replace(config, paths=paths_from_environment(config.paths, environ))


def paths_from_environment(paths: PathsConfig, environ: Mapping[str, str]) -> PathsConfig:
    """The directories that systemd (or `cordata server`) names win over the file's."""
    state = environ.get("STATE_DIRECTORY", "").split(":")[0]
    runtime = environ.get("CORDATA_RUNTIME")
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    return PathsConfig(
        state=Path(state).absolute() if state else paths.state,
        runtime=Path(runtime).absolute() if runtime else paths.runtime,
        credentials=Path(credentials).absolute() if credentials else paths.credentials,
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most like the given one: there always is one to offer."""
    import difflib  # 3 ms, and only for a mistake

    known = list(known)
    return (difflib.get_close_matches(word, known, n=1, cutoff=0.0) or known[:1])[0]


def _section(document: Document, name: str, kind: type[Any]) -> Any:
    """One section as its dataclass; defaults stand in for problems, so that checking goes on."""
    table: Any = document.tables
    for part in name.split("."):
        table = table.get(part, {}) if isinstance(table, Mapping) else {}
    if not isinstance(table, Mapping):
        document.complain(name, "", f"must be a section, not {describe(table)}")
        table = {}
    values = _values(document, name, kind, table)
    if values is None:
        return None
    try:
        section = kind(**values)
    except ValueError as error:
        document.complain(name, "", str(error))
        return None
    except Exception as error:  # noqa: BLE001 - the application's code, maybe at a reload
        text = f"its check failed with {type(error).__name__}: {error}"
        document.complain(name, "", f"{text} (at {frames(error.__traceback__)})")
        return None
    for key, text in order_complaints(name, section):
        document.complain(name, key, text)
    return section


def _values(
    document: Document, name: str, kind: type[Any], table: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The constructor's arguments of one section; None when a required key is missing or wrong."""
    hints = get_type_hints(kind)
    declared = {key_of(f.name): f for f in fields(kind)}
    values: dict[str, Any] = {}
    usable = True
    for key, value in table.items():
        if key in declared:
            document.given.add(f"{name}.{key}")
        elif not _is_override(name, key, value):
            hint = nearest(key, declared)
            document.complain(name, key, f"unknown key; the nearest known is {hint}")
    for key, declaration in declared.items():
        if is_section(hints[declaration.name]):
            values[declaration.name] = _section(document, f"{name}.{key}", hints[declaration.name])
        elif key in table:
            converted = _value(document, name, key, table[key], hints[declaration.name])
            if converted is not _BAD:
                values[declaration.name] = converted
            elif _required(declaration):
                usable = False
        elif _required(declaration):
            document.complain(name, key, "is required")
            usable = False
    return values if usable else None


_BAD = object()
_RUNTIME_SECTIONS = frozenset(f.name for f in fields(Config))


def _value(document: Document, name: str, key: str, value: object, kind: Any) -> Any:
    try:
        converted = convert(value, kind, base=document.base)
    except Unfit as error:
        document.complain(name, key, str(error))
        return _BAD
    # An application's own numbers may be negative; it checks them in __post_init__.
    section = name.split(".")[0]
    text = complaint(section, key, converted) if section in _RUNTIME_SECTIONS else None
    if text:
        document.complain(name, key, text)
        return _BAD
    return converted


def _required(declaration: Field[Any]) -> bool:
    return declaration.default is MISSING and declaration.default_factory is MISSING


def _is_override(section: str, key: str, value: object) -> bool:
    """Whether it is a section of one instance, or of one pool, within the section of all."""
    if section == "pool":
        return isinstance(value, Mapping)
    return section == "worker" and key.isdecimal() and isinstance(value, Mapping)


def _worker_overrides(document: Document, worker: WorkerConfig) -> dict[str, WorkerConfig]:
    """`[worker.N]` on top of `[worker]`, by instance name."""
    table = document.tables.get("worker")
    overrides: dict[str, WorkerConfig] = {}
    for key, value in table.items() if isinstance(table, Mapping) else ():
        if _is_override("worker", key, value):
            changed = _values(document, f"worker.{key}", WorkerConfig, value) or {}
            overrides[key] = replace(worker, **changed)
    return overrides


def _named_pools(document: Document, pool: PoolConfig) -> dict[str, PoolConfig]:
    """`[pool.NAME]` on top of `[pool]`, by name."""
    table = document.tables.get("pool")
    pools: dict[str, PoolConfig] = {}
    for name, value in table.items() if isinstance(table, Mapping) else ():
        if isinstance(value, Mapping):
            for key in value:
                if key not in OF_ONE_POOL and key in {f.name for f in fields(PoolConfig)}:
                    document.complain(f"pool.{name}", key, "is for all pools; it belongs to [pool]")
            changed = _values(document, f"pool.{name}", PoolConfig, value) or {}
            pools[name] = replace(pool, **{"workers": (), "commands": (), **changed})
    for section, key, text in pool_complaints(pool, pools):
        document.complain(section, key, text)
    return pools
