"""The two packages of one version: built, installed, made a later version."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.host.control_group import has_systemd
from tests.host.machine import Host
from tests.servers.reaper import swept

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


def serves(host: Host) -> bool:
    """Whether all that the packages start has started."""
    return host.systemctl("is-active", "cordata.target", "worker@3", check=False).split() == [
        "active",
        "active",
    ]


def installed_tree(tree: Path, packages: Packages) -> Path:
    """A copy of a tree with both packages, installed where no systemd runs, as for an image: a host
    that boots from it starts them. It is removed when this process ends.
    """
    made = swept(tree.with_name(f".installed-{os.getpid()}"))
    # dpkg replaces files, it does not write into them; others might outside of /usr.
    script = """mkdir "$2" && cp -a --link "$1/usr" "$2"
        find "$1" -mindepth 1 -maxdepth 1 ! -name usr -exec cp -a -t "$2" {} +
        rm -f "$2/var/lib/man-db/auto-update" """
    subprocess.run(["sh", "-euc", script, "-", tree, made], check=True)
    keep = [] if has_systemd() else ["--keep-unit"]
    nspawn = ["systemd-nspawn", "-q", "-D", str(made), "--as-pid2", "--register=no", *keep]
    nspawn += [f"--machine=cordata-image-{os.getpid()}", "--private-network", "--resolv-conf=off"]
    nspawn += ["--timezone=off", "--console=pipe", "--setenv=DEBIAN_FRONTEND=noninteractive"]
    nspawn += [f"--bind-ro={source}:{target}" for source, target in packages.binds().items()]
    apt = ["apt-get", "-qq", "-y", "install", *packages.binds().values()]
    done = subprocess.run(
        [*nspawn, "--", *apt],
        env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return made


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
