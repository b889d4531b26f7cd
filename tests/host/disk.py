"""Directories of a host that outlive a loss of power, on the machine until the host ends."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


class Disk:
    """Each directory of `keep`, with what the tree has in it at first."""

    def __init__(self, tree: Path, keep: Sequence[str]) -> None:
        self.tree = tree
        self.keep = keep
        self._root: Path | None = None

    def binds(self) -> list[str]:
        """Arguments of systemd-nspawn."""
        if not self.keep:
            return []
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="cordata-disk-"))
            self._root.chmod(0o711)  # the users of the host go through it
            for number, target in enumerate(self.keep):
                first = self.tree / target.lstrip("/")
                if first.is_dir():
                    subprocess.run(["cp", "-a", first, self._root / str(number)], check=True)
                else:
                    (self._root / str(number)).mkdir()
        return [f"--bind={self._root / str(n)}:{path}" for n, path in enumerate(self.keep)]

    def removal(self) -> str:
        """Shell text that removes it, for when nobody is left who could call `remove`."""
        return f"sleep 0.5; rm -rf {shlex.quote(str(self._root))}" if self._root else ":"

    def remove(self) -> None:
        """Remove it. Legal twice."""
        if self._root:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
