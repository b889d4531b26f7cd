"""`cordata new`: creates a small working application from the files in template/.

Another template is a directory beside it with the files that differ.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from cordata.config import Config
from cordata.errors import CordataError

TEMPLATE = Path(__file__).parent / "template"
#: What serves HTTP, by the name of the template; the first is the default.
TEMPLATES = {"starlette": None, "fastapi": TEMPLATE.with_name("fastapi")}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
#: Placeholders for the name: in the files, and in their paths.
_MARK, _PACKAGE = "@NAME@", "package"
#: Names of modules and directories that the application needs or that would hide it.
_TAKEN = frozenset({"cordata", "alpinehub", "tests", "test", "data"})


class BadName(CordataError):
    """Not a name for an application."""

    code = "bad_name"


class NotEmpty(CordataError):
    """The directory is not empty; nothing was written."""

    code = "not_empty"


def check_name(name: str) -> None:
    """Raises: BadName, with the reason, if an application, its package and its section of
    cordata.toml cannot have this name.
    """
    if not _NAME.match(name):
        raise BadName(f"{name!r}: lower-case letters, digits and _, a letter first, 40 at most")
    if keyword.iskeyword(name):
        raise BadName(f"{name!r} is a keyword of Python")
    if name in {field.name for field in fields(Config)}:
        raise BadName(f"{name!r} is a section of cordata.toml that the runtime uses")
    if name in _TAKEN or name in sys.stdlib_module_names or _is_installed(name):
        raise BadName(f"{name!r} is the name of another Python module: one would hide the other")


def make(name: str, directory: Path, *, template: str = "starlette") -> list[Path]:
    """Write all files of the application into `directory`, or none. Returns the files. `template`
    is one of TEMPLATES.

    Raises: BadName; NotEmpty if the directory is not empty; OSError.
    """
    check_name(name)
    if directory.is_symlink() or (directory.exists() and not _is_empty(directory)):
        raise NotEmpty(f"{directory} exists and is not empty", hint="choose another --dir")
    directory.parent.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as folder:
        whole = Path(folder) / "new"
        for relative, source in sorted(_sources(TEMPLATES[template]).items()):
            place = _place(relative, name)
            (whole / place).parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text("utf-8").replace(_MARK, name)
            (whole / place).write_text(text, "utf-8")
            made.append(directory / place)
        (whole / "data").chmod(0o700)
        try:
            if directory.exists():  # and is empty; it stays, a shell may be in it
                for one in whole.iterdir():
                    one.rename(directory / one.name)
            else:
                whole.rename(directory)
        except OSError as error:
            some = directory.is_dir() and not _is_empty(directory)
            done = "it has only some of the files: remove them" if some else "nothing was written"
            raise NotEmpty(f"{directory}: {error.strerror}; {done}") from error
    return made


def _sources(other: Path | None) -> dict[Path, Path]:
    """The files of a template by their place in it: those of `other`, else those of TEMPLATE."""
    roots = [TEMPLATE, *([] if other is None else [other])]
    return {file.relative_to(root): file for root in roots for file in root.rglob("*.in")}


def _place(source: Path, name: str) -> Path:
    """`package/app.py.in` is `NAME/app.py`, `gitignore.in` is `.gitignore`."""
    parts = [name if part == _PACKAGE else part for part in source.with_suffix("").parts]
    parts[-1] = f".{parts[-1]}" if parts[-1] == "gitignore" else parts[-1]
    return Path(*parts)


def _is_empty(directory: Path) -> bool:
    return directory.is_dir() and next(directory.iterdir(), None) is None


def _is_installed(name: str) -> bool:
    """Whether a module has this name; a mere directory, as the new one, does not count."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.loader is not None and spec.origin is not None
