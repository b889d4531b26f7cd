"""A later version of the package, for tests of upgrades."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path


def later_version(deb: Path, folder: Path, added: Mapping[str, str] | None = None) -> Path:
    """The same package as a later version, with further files (path in the package -> text)."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    text = control.read_text()
    version = next(line for line in text.splitlines() if line.startswith("Version: "))
    control.write_text(text.replace(version, version + "+later"))
    for path, content in (added or {}).items():
        (tree / path).write_text(content)
    newer = folder / "later.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(newer)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return newer
