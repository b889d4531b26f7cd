"""The two packages of one version: built, installed, made a later version."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.host.machine import Host

#: For hosts whose configuration was there before the packages.
KEEP = ("-o", "Dpkg::Options::=--force-confold")


@dataclass(frozen=True, slots=True)
class Packages:
    """The runtime and the hub."""

    cordata: Path
    alpinehub: Path

    @staticmethod
    def of(folder: Path) -> Packages:
        """Those that were built into a directory."""
        [cordata], [alpinehub] = folder.glob("cordata_*.deb"), folder.glob("alpinehub_*.deb")
        return Packages(cordata, alpinehub)

    def binds(self, folder: str = "") -> dict[Path, str]:
        """Where a host sees them: `/cordata.deb`, or in a folder, and so the other one."""
        return {
            self.cordata: f"{folder}/cordata.deb",
            self.alpinehub: f"{folder}/alpinehub.deb",
        }

    def later(self, folder: Path, added: Mapping[str, str] | None = None) -> Packages:
        """The same packages as a later version, with further files of the hub's package (path in
        the package -> text).
        """
        cordata = _later(self.cordata, folder, {})
        return Packages(cordata, _later(self.alpinehub, folder, added or {}))


def install(host: Host, folder: str = "", *options: str, timeout_s: float = 300.0) -> None:
    """Both packages in one go, as an operator does it."""
    debs = (f"{folder}/cordata.deb", f"{folder}/alpinehub.deb")
    # An index of all manuals takes longer than all the rest.
    host.run("rm", "-f", "/var/lib/man-db/auto-update")
    host.run("apt-get", "-qq", "-y", *options, "install", *debs, timeout_s=timeout_s)


def _later(deb: Path, folder: Path, added: Mapping[str, str]) -> Path:
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    text = control.read_text()
    [version] = [line for line in text.splitlines() if line.startswith("Version: ")]
    number = version.removeprefix("Version: ")
    text = text.replace(version, f"{version}+later")
    control.write_text(text.replace(f"(= {number})", f"(= {number}+later)"))
    for path, content in added.items():
        (tree / path).write_text(content)
    newer = folder / f"later-{deb.name}"
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(newer)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return newer
