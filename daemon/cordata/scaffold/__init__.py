"""`cordata new`: the files of a small working application, and what they are made from."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from cordata.config import Config
from cordata.errors import CordataError

TEMPLATE = Path(__file__).parent / "template"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
#: Stands for the name, in the files and in their paths.
_MARK, _PACKAGE = "@NAME@", "package"
#: Names that would be found instead of, or hidden by, something that is needed.
_TAKEN = frozenset({"cordata", "alpinehub", "tests", "test", "data"})


class BadName(CordataError):
    """Not a name for an application."""

    code = "bad_name"


class NotEmpty(CordataError):
    """There is something already; nothing was written."""

    code = "not_empty"


def check_name(name: str) -> None:
    """Whether an application, its package and its section of cordata.toml can have the name.

    Raises: BadName with the reason.
    """
    if not _NAME.match(name):
        raise BadName(f"{name!r}: lower-case letters, digits and _, a letter first, 40 at most")
    if keyword.iskeyword(name):
        raise BadName(f"{name!r} is a word of Python's own")
    if name in {field.name for field in fields(Config)}:
        raise BadName(f"{name!r} is a section of cordata.toml that the runtime has for itself")
    if name in _TAKEN or name in sys.stdlib_module_names or _is_installed(name):
        raise BadName(f"{name!r} is the name of another Python module, one would hide the other")


def make(name: str, directory: Path) -> list[Path]:
    """Write the application into `directory`, all of it or nothing. Returns its files.

    Raises: BadName; NotEmpty when there is something; OSError.
    """
    check_name(name)
    if directory.is_symlink() or (directory.exists() and not _is_empty(directory)):
        raise NotEmpty(f"{directory} is there already, and not empty", hint="choose another --dir")
    directory.parent.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as folder:
        whole = Path(folder) / "new"
        for source in sorted(TEMPLATE.rglob("*.in")):
            place = _place(source.relative_to(TEMPLATE), name)
            (whole / place).parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text("utf-8").replace(_MARK, name)
            (whole / place).write_text(text, "utf-8")
            made.append(directory / place)
        (whole / "data").chmod(0o700)
        try:
            os.rename(whole, directory)  # over an empty directory at most
        except OSError as error:
            raise NotEmpty(f"{directory}: {error.strerror}; nothing was written") from error
    return made


def _place(source: Path, name: str) -> Path:
    """`package/app.py.in` is `NAME/app.py`, `gitignore.in` is `.gitignore`."""
    parts = [name if part == _PACKAGE else part for part in source.with_suffix("").parts]
    parts[-1] = f".{parts[-1]}" if parts[-1] == "gitignore" else parts[-1]
    return Path(*parts)


def _is_empty(directory: Path) -> bool:
    return directory.is_dir() and next(directory.iterdir(), None) is None


def _is_installed(name: str) -> bool:
    """A mere folder, such as the one that is to be made, is no module."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.loader is not None and spec.origin is not None
