"""What the documentation tells an operator to type on a server, typed in its order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.documents import blocks, commands
from tests.host.machine import Host, find_tree

#: `journalctl -f` ends only with the reader's patience.
FOLLOW_S = 2


@pytest.fixture
def bare(deb: Path) -> Iterator[Host]:
    """A host without the package, which lies in root's directory."""
    with Host(find_tree(), binds={deb: "/mnt/cordata.deb"}) as host:
        host.sh("cp /mnt/cordata.deb /root/cordata.deb")
        [code] = [text for text in blocks("python") if text.startswith("# bookings.py\n")]
        host.run("sh", "-c", "cat >/root/bookings.py", stdin=code)
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
    # The last section puts an application of one's own in place of the hub; one before stopped all.
    bare.systemctl("start", "http.socket", "cordata.target")
    url = "http://127.0.0.1:8080"
    assert bare.run("curl", "-sS", f"{url}/ready").stdout == '{"ready":true}'
    assert '"event"' in bare.run("curl", "-sS", "-X", "POST", f"{url}/book/7").stdout
    bare.systemctl("start", "tally.service")
