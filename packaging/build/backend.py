"""The build backend of pyproject.toml: setuptools, in a copy of the checkout.

In the checkout itself it leaves build/ and *.egg-info, and packs what an earlier build left there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import build_meta

# An editable installation is one of the checkout itself.
from setuptools.build_meta import build_editable as build_editable
from setuptools.build_meta import build_sdist as build_sdist

Settings = dict[str, str | list[str] | None] | None

_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "daemon", "packaging/build/backend.py")


def build_wheel(target: str, settings: Settings = None, metadata: str | None = None) -> str:
    """PEP 517. Returns the name of the file in the directory `target`."""
    target = os.path.abspath(target)
    with _copied():
        return str(build_meta.build_wheel(target, settings))


def prepare_metadata_for_build_wheel(target: str, settings: Settings = None) -> str:
    """PEP 517. Returns the name of the directory in the directory `target`."""
    target = os.path.abspath(target)
    with _copied():
        return str(build_meta.prepare_metadata_for_build_wheel(target, settings))


@contextlib.contextmanager
def _copied() -> Iterator[None]:
    """While inside, the working directory is a copy of what is packed."""
    checkout = Path.cwd()
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    with tempfile.TemporaryDirectory(prefix="cordata-build-") as copy:
        for name in _SOURCES:
            source, target = checkout / name, Path(copy) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=skip)
            else:
                shutil.copy2(source, target)
        os.chdir(copy)
        try:
            yield
        finally:
            os.chdir(checkout)
