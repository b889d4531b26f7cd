"""`pip install .` leaves the checkout as it is, and packs all that the programs read."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: What pip calls, in its order (PEP 517), without its download of the backend.
_BUILD = """
import importlib, os, sys, tomllib
out = sys.argv[1]  # setuptools sets arguments of its own
system = tomllib.load(open("pyproject.toml", "rb"))["build-system"]
sys.path[:0] = [os.path.abspath(path) for path in system.get("backend-path", [])]
backend = importlib.import_module(system["build-backend"])
getattr(backend, "get_requires_for_build_wheel", lambda: [])()
os.makedirs(out + "/metadata")
backend.prepare_metadata_for_build_wheel(out + "/metadata")
backend.build_wheel(out)
"""


def builds() -> bool:
    """Whether setuptools is there and makes wheels by itself."""
    if importlib.util.find_spec("setuptools") is None:
        return False
    version = importlib.metadata.version("setuptools").split(".")
    return (int(version[0]), int(version[1])) >= (70, 1)


def files(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*")}


@pytest.mark.skipif(not builds(), reason="setuptools 70.1 or newer is not installed")
def test_checkout_is_as_before_when_it_was_built(tmp_path: Path) -> None:
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    shutil.copytree(ROOT / "daemon", checkout / "daemon", ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "packaging/build/backend.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    before = files(checkout)
    command = [sys.executable, "-B", "-c", _BUILD, str(out)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert files(checkout) - before == set()
    [wheel] = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(name) for name in archive.namelist()}
    read = ("*.py", "*.sql", "*.g", "*.in", "*.j2", "*.css", "*.js", "*.svg", "py.typed")
    daemon = ROOT / "daemon"
    wanted = {path.relative_to(daemon) for kind in read for path in daemon.rglob(kind)}
    assert wanted <= packed
