"""What README.md tells an operator to type on a server, typed in its order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.machine import Host, find_tree
from tests.host.readme import commands

#: `journalctl -f` ends only with the reader's patience.
FOLLOW_S = 2


@pytest.fixture
def bare(deb: Path) -> Iterator[Host]:
    """A host without the package, which lies in root's directory."""
    with Host(find_tree(), binds={deb: "/mnt/cordata.deb"}) as host:
        host.sh("cp /mnt/cordata.deb /root/cordata.deb")
        yield host


def test_every_command_for_a_server_succeeds_when_typed(bare: Host) -> None:
    typed = commands("# ")
    assert typed[0].startswith("apt install")
    for command in typed:
        follows = command.endswith(" -f")
        patience = f"timeout {FOLLOW_S} " if follows else ""
        yes = command.replace("apt install", "apt-get install -y")
        done = bare.run("bash", "-c", f"cd && {patience}{yes}", check=False)
        assert done.returncode in ((124,) if follows else (0,)), (command, done)
