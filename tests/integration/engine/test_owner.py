"""Owner files: who is known dead, and of whom nothing can be known."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.servers.reaper import watched

from cordata.broker import Owner, Owners, pid_of
from cordata.broker.owner import plain_name


def test_owner_is_dead_when_its_lock_is_free_or_its_file_is_gone(tmp_path: Path) -> None:
    one, two = (Owner.register(tmp_path, name=f"worker-{n}") for n in range(2))
    owners = Owners(tmp_path)
    assert owners.dead([one.id, two.id]) == []
    one.close()
    assert owners.dead([one.id, two.id]) == [one.id]
    two.close()


def test_owner_lives_when_its_file_is_deleted_and_its_process_runs(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from cordata.broker import Owner\n"
        "owner = Owner.register(Path(sys.argv[1]), name='worker-0')\n"
        "print(owner.id, flush=True); sys.stdin.read()"
    )
    child = watched(
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "daemon")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    try:
        assert child.stdout is not None
        owner_id, owners = child.stdout.readline().strip(), Owners(tmp_path)
        (tmp_path / "owner" / owner_id).unlink()
        assert owners.is_alive(owner_id)
        # Another process has its number now.
        other = owner_id[:-8] + f"{int(owner_id[-8:], 16) ^ 1:08x}"
        assert not owners.is_alive(other)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not owners.is_alive(owner_id)  # a zombie does nothing any more
    finally:
        child.kill()
        child.communicate()
    assert not Owners(tmp_path).is_alive(owner_id)


def test_owner_names_worker_host_and_process(tmp_path: Path) -> None:
    owner = Owner.register(tmp_path, name="worker-0")
    owner.close()
    host = re.escape(socket.gethostname())
    assert re.fullmatch(rf"worker-0@{host}\.[0-9a-f]{{8}}\.\d+\.[0-9a-f]{{16}}", owner.id)
    assert pid_of(owner.id) == os.getpid()


def test_owner_of_another_place_is_not_known_dead(tmp_path: Path) -> None:
    """Its file is elsewhere: another host, or another runtime directory of this one."""
    elsewhere = Owner.register(tmp_path / "there", name="worker-0")
    elsewhere.close()
    assert Owners(tmp_path / "here").dead([elsewhere.id, "worker-0@other.0badcafe.1.2"]) == []
    assert Owners(tmp_path / "there").dead([elsewhere.id]) == [elsewhere.id]


def test_place_is_the_same_when_reached_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    owner = Owner.register(tmp_path / "link", name="worker-0")
    owner.close()
    assert Owners(tmp_path / "real").dead([owner.id]) == [owner.id]


def test_people_see_worker_and_host_whatever_their_names(tmp_path: Path) -> None:
    owner = Owner.register(tmp_path, name="worker-0")
    owner.close()
    assert plain_name(owner.id) == f"worker-0@{socket.gethostname()}"
    assert plain_name("worker-0@a.long.name.0badcafe.12.3f") == "worker-0@a.long.name"
    for other in ("", "somebody", "worker-0@a.long.host.name", "a.b.1.c"):
        assert plain_name(other) == other
