"""What the documentation tells an operator to type on a server, typed in its order."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import pytest
from tests.host.documents import blocks, commands
from tests.host.machine import Host, find_tree
from tests.host.package import Packages

#: `journalctl -f` ends only with the reader's patience.
FOLLOW_S = 2


@pytest.fixture
def bare(debs: Packages) -> Iterator[Host]:
    """A host without the packages, which lie in root's directory."""
    with Host(find_tree(), binds=debs.binds("/mnt")) as host:
        host.sh("cp /mnt/*.deb /root")
        [code] = [text for text in blocks("python") if text.startswith("# bookings.py\n")]
        host.run("sh", "-c", "cat >/root/bookings.py", stdin=code)
        host.path("/root/room_names-1.0-py3-none-any.whl").write_bytes(wheel())
        yield host


def wheel() -> bytes:
    """A library that Debian does not have."""
    about = "room_names-1.0.dist-info"
    files = {
        "room_names.py": 'NAMES = {"7": "Zirbe"}\n',
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: room-names\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(name, text)
    return packed.getvalue()


def type_in(host: Host, typed: list[str]) -> None:
    """Type the commands; each must succeed."""
    assert typed[0].startswith("apt install")
    for command in typed:
        follows = command.endswith(" -f")
        patience = f"timeout {FOLLOW_S} " if follows else ""
        yes = command.replace("apt install", "apt-get install -y")
        done = host.run("bash", "-c", f"cd && {patience}{yes}", check=False, timeout_s=600)
        assert done.returncode in ((124,) if follows else (0,)), (command, done)


def test_every_command_for_a_server_succeeds_when_typed(bare: Host) -> None:
    type_in(bare, commands("# "))
    # One before stopped all.
    bare.systemctl("start", "http.socket", "cordata.target")
    assert "ready" in bare.run("curl", "-sS", "http://127.0.0.1:8080/api/ready").stdout


def test_application_runs_on_the_bare_runtime_when_the_commands_are_typed(bare: Host) -> None:
    type_in(bare, commands("app# "))
    # At the port that replaced 8080, and the second application.
    for url in ("http://127.0.0.1:8000", "http://127.0.0.1:8090"):
        assert bare.run("curl", "-sS", f"{url}/ready").stdout == '{"ready":true}'
        assert '"event"' in bare.run("curl", "-sS", "-X", "POST", f"{url}/book/7").stdout
    assert bare.run("curl", "http://127.0.0.1:8080/ready", check=False).returncode == 7
    assert bare.sh("ls /var/lib/second/cordata.db")
    bare.systemctl("start", "job@tally.service")
    [timer] = bare.systemctl("list-timers", "--no-legend", "tally.timer").splitlines()
    assert "job@tally.service" in timer
    # The library beside the package: the application imports it, in all processes.
    bare.sh("sed -i '1a import room_names' /srv/bookings/bookings.py")
    bare.run("cordata", "rolling-restart")
    assert bare.run("curl", "-sS", "http://127.0.0.1:8000/ready").stdout == '{"ready":true}'
    mapped = bare.sh("cordata config check && ls /opt/bookings/lib/python3.13/site-packages")
    assert "room_names.py" in mapped and "starlette" not in mapped
