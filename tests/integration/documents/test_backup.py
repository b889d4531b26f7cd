"""The documented copy of the database, made while a server runs, and put back."""

from __future__ import annotations

import grp
import os
import pwd
import signal
import subprocess
from pathlib import Path

from tests.host.documents import blocks
from tests.integration.server.running import server


def shell(script: str, state: Path) -> None:
    """Run a block on another directory, as another user, without the units."""
    user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    script = script.replace("/var/lib/cordata", str(state)).replace("/root", str(state.parent))
    script = script.replace("/etc/cordata/credentials", str(state.parent / "credentials"))
    script = script.replace("-o cordata -g cordata", f"-o {user} -g {group}")
    lines = [line for line in script.splitlines() if not line.startswith("systemctl ")]
    subprocess.run(["bash", "-ec", "umask 022\n" + "\n".join(lines)], check=True)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_copy_of_the_documents_is_private_and_takes_writes_when_restored(tmp_path: Path) -> None:
    state = tmp_path / "state"
    key = tmp_path / "credentials/master-key"
    key.parent.mkdir()
    key.write_text("5a" * 32)
    copy, restore = [text for text in blocks("bash") if "/var/lib/cordata/cordata.db" in text]
    with server(state, workers=1) as running:
        running.get("/publish")
        running.until_logged("handled thing.done")
        shell(copy, state)
        running.get("/publish")
        running.until_logged("handled thing.done", 2)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    assert mode(tmp_path / "cordata-copy.db") == 0o600
    key.unlink()  # the other host
    shell(restore, state)
    assert mode(state / "cordata.db") == 0o600
    assert (mode(key), key.read_text()) == (0o600, "5a" * 32)
    with server(state, workers=1) as running:
        running.get("/publish")
        running.until_logged("handled thing.done", 1)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
