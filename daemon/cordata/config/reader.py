"""Reads cordata.toml into frozen sections; one ConfigError names all problems of the file.

    find_file -> open_document -> Document -> choose_app (what to import) -> build -> Config
                  + conf.d/*.toml beside the file

msgspec converts each value to the type of its field and checks its limits. This module adds unknown
and required keys, sections that override others, and the text of each problem.
"""

from __future__ import annotations

import os
import pwd
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from cordata.config.pool import OF_ONE_POOL, PoolConfig
from cordata.config.rules import pool_problems, section_problems
from cordata.config.sections import AppConfig, Config, PathsConfig, WorkerConfig
from cordata.errors import ConfigError
from cordata.log import frames

DEFAULT_FILE = Path("/etc/cordata/cordata.toml")
#: Directory beside the configuration file, for settings in the packages of applications.
DROP_INS = "conf.d"
_MAX_BYTES = 1_048_576
_RUNTIME_SECTIONS = frozenset(declared.name for declared in fields(Config))


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file with its drop-ins, not yet checked."""

    #: None: there is no file, everything has its default.
    path: Path | None
    #: The keys of all files together.
    tables: Mapping[str, Any] = field(default_factory=dict)
    #: The keys of each file: of the drop-ins in effect, then of the file itself. Each overrides
    #: those before it.
    files: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)

    def table(self, section: str) -> object:
        """The value at `[section]` or `[section.NAME]`; an empty table if there is none."""
        found = _table(self.tables, section)
        return {} if found is None else found

    def source(self, section: str, key: str) -> Path | None:
        """The file that a key was read from; for key "", the file that has the section."""
        found = [path for path, tables in self.files.items() if _has(tables, section, key)]
        return found[-1] if found else self.path


def _table(tables: Mapping[str, Any], section: str) -> object:
    found: object = tables
    for part in section.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _has(tables: Mapping[str, Any], section: str, key: str) -> bool:
    table = _table(tables, section)
    return key in table if key and isinstance(table, Mapping) else table is not None


def key_of(name: str) -> str:
    """The TOML key of a field: `import_` is `import` in the file."""
    return name.rstrip("_")


def is_section(kind: object) -> bool:
    """Whether a declared type is a (sub)section with keys of its own."""
    return isinstance(kind, type) and is_dataclass(kind)


def find_file(
    option: str | Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    default: Path = DEFAULT_FILE,
) -> Path | None:
    """--config, else $CORDATA_CONFIG, else ./cordata.toml, else the default file, else None.

    Raises: ConfigError if a named file does not exist, if another user can write to ./cordata.toml,
    its drop-ins or their directories, or if the default file names an application as well: then
    the one that serves here and the one of this directory are both possible. Also what
    `drop_in_files` raises.
    """
    named = option or environ.get("CORDATA_CONFIG")
    if named:
        if not os.path.isfile(named):
            text = f"{named}: no such file, or this user may not look there"
            raise ConfigError(text, hint="check --config or CORDATA_CONFIG")
        return Path(named).absolute()
    # False, too, in a directory that this user may not look into, and in one that is gone.
    if not os.path.isfile(DEFAULT_FILE.name):
        return default if default.is_file() else None
    path = Path(DEFAULT_FILE.name).absolute()
    for file in (path, *drop_in_files(path)):
        _check_trust(file, named=path)
    if default.is_file() and not path.samefile(default) and _names_app(default):
        raise ConfigError(
            f"{path} and {default} are two applications; it is not clear which one is meant",
            hint=f"--config {path}, or --config {default}",
        )
    return path


def _names_app(path: Path) -> bool:
    """Whether a file or one of its drop-ins names an application; an unreadable one may do so."""
    try:
        return any(_app_of(_parse(file)) for file in (path, *drop_in_files(path)))
    except ConfigError:
        return True


def _check_trust(path: Path, *, named: Path) -> None:
    """Refuse a file that was not named if another user than root can change it.

    The file names code to import, often from its own directory. Without this check, a user who can
    write to a directory could run code as every user, root included, who calls a command there. The
    group of this process may have write permission: with umask 002, each user has a group of their
    own. The target of a symbolic link is checked like a file. Raises: ConfigError.
    """
    places = ((path, path.lstat()), (path, path.stat()), (path.parent, path.parent.stat()))
    for place, found in places:
        may_write = 0 if stat.S_ISLNK(found.st_mode) else found.st_mode
        if found.st_uid not in (0, os.geteuid()):
            why = f"{place} belongs to {_user(found.st_uid)}"
        elif may_write & stat.S_IWOTH:
            why = f"every user may write to {place}"
        elif may_write & stat.S_IWGRP and found.st_gid != os.getegid():
            why = f"a group of other users may write to {place}"
        else:
            continue
        raise ConfigError(
            f"{path} was not named and is not read: {why}",
            hint=f"--config {named} if you trust it, or --config with another file",
        )


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


def open_document(path: Path | None, app: str | None = None) -> Document:
    """Read and parse the file and its drop-ins; without a path, return an empty document.

    The file's keys override those of drop-ins. A drop-in that names an application is used only if
    that application runs: `app`, else the file's [app] import, else the one that drop-ins name. So
    the settings of one packaged application do not affect another. Raises: ConfigError, also if
    drop-ins name several applications and neither `app` nor the file selects one.
    """
    if path is None:
        return Document(path=None)
    own = _parse(path)
    found = {file: _parse(file) for file in drop_in_files(path)}
    named = {file: name for file, one in found.items() if (name := _app_of(one)) is not None}
    chosen = app or _app_of(own)
    if chosen is None and len(set(named.values())) > 1:
        texts = (f"{file} names the application {name}" for file, name in named.items())
        raise ConfigError(*texts, hint=f"write the `import` of one of them below [app] in {path}")
    files = {
        file: one
        for file, one in found.items()
        if chosen is None or named.get(file, chosen) == chosen
    }
    files[path] = own
    tables: Mapping[str, Any] = {}
    for one in files.values():
        tables = _merged(tables, one)
    return Document(path=path, tables=tables, files=files)


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def drop_in_files(path: Path) -> list[Path]:
    """The drop-ins of a configuration file, in the order in which they are read.

    Raises: ConfigError if this user may not look into their directory: a process must not run with
    a part of its settings.
    """
    directory = path.parent / DROP_INS
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        hint = f"`chmod a+rX {directory}`" if isinstance(error, PermissionError) else None
        raise ConfigError(f"{directory}: {error.strerror}", hint=hint) from error
    return sorted(
        directory / name for name in names if name.endswith(".toml") and not name.startswith(".")
    )


def _app_of(tables: Mapping[str, Any]) -> str | None:
    """[app] import, if there is one."""
    section = tables.get("app")
    named = section.get("import") if isinstance(section, Mapping) else None
    return named if isinstance(named, str) and named else None


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of both tables; a value of `high` overrides that of `low`. Merges nested tables."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merged(below, value) if both else value  # type: ignore[arg-type]
    return merged


def choose_app(document: Document, app: str | None) -> AppConfig:
    """The checked section [app], needed before the application and its sections can be checked;
    `app` replaces its `import`. Raises: ConfigError, also if neither names an application.
    """
    check = _Check(document)
    section: AppConfig = check.section("app", AppConfig)
    if check.problems:
        raise ConfigError(*check.problems)
    if app is not None:
        return replace(section, import_=app, path=(Path.cwd(), *section.path))
    if not section.import_:
        where = (
            f"{document.path}: [app] import is not set"
            if document.path
            else ("there is no configuration file, and no --app")
        )
        raise ConfigError(
            f"there is no application to run: {where}",
            hint='write `import = "MODULE:APP"` below `[app]` into cordata.toml, or give --app '
            "MODULE:APP; `cordata new NAME` makes an application with its cordata.toml; "
            "on a server, `systemctl enable --now cordata.target` starts it",
        )
    return section


def build(
    document: Document,
    settings: Mapping[str, type[Any]] | None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The checked configuration.

    `settings` are the section types that the application declares; None if it was not imported:
    then unknown sections are ignored. Raises: ConfigError with all problems.
    """
    check = _Check(document)
    kinds = {name: kind for name, kind in _hints_of(Config).items() if is_section(kind)}
    sections = {name: check.section(name, kind) for name, kind in kinds.items()}
    own = {name: check.section(name, kind) for name, kind in (settings or {}).items()}
    workers = check.workers(sections["worker"])
    pools = check.pools(sections["pool"])
    if settings is not None:
        for name in document.tables:
            if name not in kinds and name not in settings:
                hint = nearest(name, [*kinds, *settings])
                check.add(name, "", f"unknown section; the nearest known is [{hint}]")
    if check.problems:
        hint = "`cordata config show` prints every known key"
        raise ConfigError(*check.problems, hint=hint)
    config = Config(**sections, workers=workers, pools=pools, settings=own)
    return replace(config, paths=paths_from_environment(config.paths, environ))


def paths_from_environment(paths: PathsConfig, environ: Mapping[str, str]) -> PathsConfig:
    """`paths`, overridden by the directories that systemd or `cordata server` sets."""
    state = environ.get("STATE_DIRECTORY", "").split(":")[0]
    runtime = environ.get("CORDATA_RUNTIME")
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    return PathsConfig(
        state=Path(state).absolute() if state else paths.state,
        runtime=Path(runtime).absolute() if runtime else paths.runtime,
        credentials=Path(credentials).absolute() if credentials else paths.credentials,
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most similar to the given one, however different it is."""
    import difflib  # takes 3 ms, and is needed for errors only

    known = list(known)
    return (difflib.get_close_matches(word, known, n=1, cutoff=0.0) or known[:1])[0]


class _Check:
    """One pass over a document; defaults replace invalid values, so that all problems are found."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[str] = []
        # Relative paths start at the directory of the file.
        self._base = document.path.parent if document.path else Path.cwd()

    def add(self, section: str, key: str, text: str) -> None:
        where = f"[{section}] {key}: " if key else f"[{section}]: "
        file = self.document.source(section, key) or "defaults"
        self.problems.append(f"{file}: {where}{text}")

    def section(self, name: str, kind: type[Any]) -> Any:
        """`[name]` as its dataclass; None if a required key is missing or __post_init__ raises."""
        table = self.document.table(name)
        if not isinstance(table, Mapping):
            self.add(name, "", f"must be a section, not {_describe(table)}")
            table = {}
        values = self._values(name, kind, table)
        if values is None:
            return None
        try:
            section = kind(**values)
        except ValueError as error:
            self.add(name, "", str(error))
            return None
        except Exception as error:  # noqa: BLE001 - the application's code, maybe at a reload
            text = f"its check failed with {type(error).__name__}: {error}"
            self.add(name, "", f"{text} (at {frames(error.__traceback__)})")
            return None
        # An application checks its sections itself, by types and in __post_init__.
        if name in _RUNTIME_SECTIONS:
            for key, text in section_problems(name, section):
                self.add(name, key, text)
        return section

    def workers(self, worker: WorkerConfig) -> dict[str, WorkerConfig]:
        """`[worker.N]` on top of `[worker]`, by instance name."""
        return {key: self._override("worker", key, worker) for key in self._overrides("worker")}

    def pools(self, pool: PoolConfig) -> dict[str, PoolConfig]:
        """`[pool.NAME]` on top of `[pool]`, by name."""
        of_each = replace(pool, workers=(), commands=())
        pools = {name: self._override("pool", name, of_each) for name in self._overrides("pool")}
        for section, key, text in pool_problems(pool, pools):
            self.add(section, key, text)
        return pools

    def _overrides(self, section: str) -> list[str]:
        table = self.document.tables.get(section)
        items = table.items() if isinstance(table, Mapping) else ()
        return [key for key, value in items if _is_override(section, key, value)]

    def _override(self, section: str, key: str, whole: Any) -> Any:
        name = f"{section}.{key}"
        table: Any = self.document.table(name)
        if section == "pool":
            for word in table.keys() & {declared.name for declared in fields(whole)} - OF_ONE_POOL:
                self.add(name, word, "applies to all pools: set it in [pool]")
        override = replace(whole, **(self._values(name, type(whole), table) or {}))
        for word, text in section_problems(name, override):
            if word in table:
                self.add(name, word, text)
        return override

    def _values(
        self, name: str, kind: type[Any], table: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The constructor's arguments of one section; None if a required key is missing or bad."""
        hints = _hints_of(kind)  # type: ignore[arg-type]  # a class is hashable
        declared = {key_of(one.name): one for one in fields(kind)}
        values: dict[str, Any] = {}
        usable = True
        for key, value in table.items():
            if key not in declared and not _is_override(name, key, value):
                self.add(name, key, f"unknown key; the nearest known is {nearest(key, declared)}")
        for key, one in declared.items():
            if is_section(hints[one.name]):
                values[one.name] = self.section(f"{name}.{key}", hints[one.name])
            elif key in table:
                try:
                    values[one.name] = self._convert(table[key], hints[one.name])
                except msgspec.ValidationError:
                    text = f"must be {_expected(hints[one.name])}, not {_describe(table[key])}"
                    self.add(name, key, text)
                    usable = usable and not _is_required(one)
                except TypeError as error:
                    self.add(name, key, f"its declared type cannot be read from TOML: {error}")
            elif _is_required(one):
                self.add(name, key, "is required")
                usable = False
        return values if usable else None

    def _convert(self, value: object, kind: Any) -> Any:
        return msgspec.convert(value, kind, dec_hook=self._path)

    def _path(self, kind: type[Any], value: object) -> Path:
        """Convert a path for msgspec. Raises: ValueError for any other class."""
        if issubclass(kind, Path) and isinstance(value, str) and value:
            return self._base / Path(value).expanduser()
        raise ValueError


@cache  # of all sections: half of the time that `build` takes
def _hints_of(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _is_required(declared: Field[Any]) -> bool:
    return declared.default is MISSING and declared.default_factory is MISSING


def _is_override(section: str, key: str, value: object) -> bool:
    """Whether `section.key` is `[worker.N]` or `[pool.NAME]`."""
    if section == "pool":
        return isinstance(value, Mapping)
    return section == "worker" and key.isdecimal() and isinstance(value, Mapping)


def _expected(kind: Any) -> str:
    """The expected kind of a value, in the terms of TOML."""
    from msgspec import inspect  # takes 6 ms, and is needed for errors only

    def words(type_: inspect.Type) -> str:
        match type_:
            case inspect.UnionType(types):
                return words(next(one for one in types if not isinstance(one, inspect.NoneType)))
            case inspect.LiteralType(values):
                return f"one of {', '.join(map(repr, values))}"
            case inspect.VarTupleType(item) | inspect.ListType(item):
                return f"a list, each item {words(item)}"
            case inspect.DictType(_, value):
                return f"a table, each value {words(value)}"
            case inspect.CustomType(cls) if issubclass(cls, Path):
                return "a path"
            case inspect.IntType(ge=low, le=high):
                return "a whole number" + _range(low, high)
            case inspect.FloatType(ge=low, le=high):
                return "a number" + _range(low, high)
            case inspect.BoolType():
                return "true or false"
            case inspect.StrType():
                return "a string"
            case _:
                return f"a {type(type_).__name__.removesuffix('Type').lower()}"

    return words(inspect.type_info(kind))


def _range(low: float | None, high: float | None) -> str:
    return ("" if low is None else f" from {low}") + ("" if high is None else f" to {high}")


def _describe(value: object) -> str:
    """A value for an error text: at most 60 characters, in the terms of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    text = repr(value)
    if any(sign in text for sign in ("://", "@", "=")):
        return "a text like an address"  # it may contain a password
    return text if len(text) <= 60 else text[:57] + "..."
