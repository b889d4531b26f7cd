"""The file of sessions and globals: what one process writes another one reads, and limits hold."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, msgpack
from tests.integration.store.parts import fill, needs_root, small_disk
from tests.servers.reaper import watched

from cordata.errors import (
    PoolUnavailable,
    SessionExists,
    SessionNotFound,
    SessionQuotaExceeded,
)
from cordata.pool.shared.protocol import SessionRequest, SessionState
from cordata.pool.shared.sessions import Delta, SessionStore
from cordata.pool.shared.spec import SessionLimits

SECOND_US = 1_000_000


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.us = 1_800_000_000 * SECOND_US

    def __call__(self) -> int:
        return self.us

    def forward(self, seconds: float) -> None:
        self.us += round(seconds * SECOND_US)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool" / "sessions.db"


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[SessionStore]:
    store = SessionStore(path, SessionLimits(), now_us=clock)
    yield store
    store.close()


def create(store: SessionStore, id: str, **fields: Any) -> SessionState:
    return store.create(SessionRequest(0, "create", id, **fields))


def update(store: SessionStore, id: str, **fields: Any) -> SessionState:
    return store.update(SessionRequest(0, "update", id, **fields))


def raw(value: object) -> Raw:
    return Raw(msgpack.encode(value))


def plain(values: dict[str, Raw]) -> dict[str, Any]:
    return {name: msgpack.decode(value) for name, value in values.items()}


def test_session_is_seen_by_another_process_with_all_that_was_saved(
    store: SessionStore, path: Path, clock: Clock
) -> None:
    made = create(store, "box", set={"guest": raw("Eva"), "old": raw(1)}, ttl_s=600)
    store.save("box", Delta(set={"items": raw(["boots"])}, delete=["old"], count={"packed": 1}))
    other = SessionStore(path, SessionLimits(), now_us=clock)
    found = other.use("box", worker="2")
    assert plain(found.data) == {"guest": "Eva", "items": ["boots"]}
    assert (found.counters, found.worker, found.ttl_s) == ({"packed": 1}, "2", 600)
    assert found.version > made.version
    other.save("box", Delta(set={"items": raw([])}, count={"packed": 2}))
    assert plain(store.get("box").data) == {"guest": "Eva", "items": []}
    assert store.count("box", {"packed": -5, "seen": 1}) == {"packed": -2, "seen": 1}
    other.close()


def test_session_lives_for_its_time_after_each_use_and_little_longer(
    store: SessionStore, clock: Clock
) -> None:
    create(store, "box", ttl_s=100)
    for _ in range(3):
        clock.forward(99.9)
        assert store.use("box").expires_in_s <= 100
    assert store.get("box", peek=True).id == "box"
    clock.forward(105.1)
    with pytest.raises(SessionNotFound):
        store.use("box")
    assert store.page() == []
    create(store, "box", ttl_s=100)
    clock.forward(99)
    store.get("box", peek=True)
    clock.forward(6.1)  # looking is no use
    with pytest.raises(SessionNotFound):
        store.get("box", peek=True)
    assert (store.sweep(), store.sweep(), store.stats()["count"]) == (1, 0, 0)


def test_a_shorter_time_ends_the_session_sooner(store: SessionStore, clock: Clock) -> None:
    create(store, "box", ttl_s=100_000)
    update(store, "box", ttl_s=10)
    clock.forward(10.6)
    with pytest.raises(SessionNotFound):
        store.use("box")


def test_session_made_anew_has_nothing_of_the_former_one(
    store: SessionStore, path: Path, clock: Clock
) -> None:
    first = create(store, "box", set={"a": raw(1)})
    other = SessionStore(path, SessionLimits(), now_us=clock)
    other.delete("box")
    second = create(other, "box")
    assert second.version > first.version
    assert store.use("box").data == {}
    with pytest.raises(SessionExists):
        create(store, "box")
    other.close()


def test_session_keeps_the_worker_of_its_first_call_until_it_is_told_another(
    store: SessionStore,
) -> None:
    create(store, "box", affinity="strict_queue")
    assert store.use("box").worker == ""
    for worker in ("1", "2"):
        assert store.use("box", worker=worker).worker == "1"
    assert update(store, "box", worker="3", affinity="hint").affinity == "hint"
    assert store.use("box", worker="1").worker == "3"


def test_globals_are_seen_at_once_also_when_they_are_deleted(
    store: SessionStore, path: Path, clock: Clock
) -> None:
    other = SessionStore(path, SessionLimits(), now_us=clock)
    store.save("", Delta(globals_set={"season": raw("winter"), "tax": raw(0.22)}))
    assert plain(other.globals()) == {"season": "winter", "tax": 0.22}
    store.save("", Delta(globals_set={"season": raw("summer")}))
    assert plain(other.globals()) == {"season": "summer", "tax": 0.22}
    store.save("", Delta(globals_delete=["tax", "unknown"]))
    assert plain(other.globals()) == {"season": "summer"}
    assert store.stats()["globals"] == 1
    other.close()


def test_save_changes_session_and_globals_both_or_none(path: Path) -> None:
    store = SessionStore(path, SessionLimits(max_session_bytes=500))
    create(store, "box", set={"a": raw(1)})
    delta = Delta(set={"a": raw("x" * 500)}, globals_set={"season": raw("winter")})
    with pytest.raises(SessionQuotaExceeded, match="500 are allowed"):
        store.save("box", delta)
    assert plain(store.use("box").data) == {"a": 1}
    assert store.globals() == {}
    store.delete("box")
    store.save("box", delta)  # the session is gone, its part with it
    assert plain(store.globals()) == {"season": "winter"}
    store.close()


def test_limits_of_number_and_bytes_hold_for_all_processes_together(
    path: Path, clock: Clock
) -> None:
    limits = SessionLimits(max_sessions=2, max_sessions_bytes=400, max_globals_bytes=100)
    one = SessionStore(path, limits, now_us=clock)
    two = SessionStore(path, limits, now_us=clock)
    create(one, "a", set={"x": raw("y" * 200)}, ttl_s=10)
    create(two, "b", ttl_s=1000)
    with pytest.raises(SessionQuotaExceeded, match="the limit"):
        create(one, "c")
    with pytest.raises(SessionQuotaExceeded, match="all sessions"):
        update(two, "b", set={"x": raw("y" * 200)})
    clock.forward(11)
    create(two, "c", set={"x": raw("y" * 200)})
    assert [session.id for session in one.page()] == ["b", "c"]
    assert [session.id for session in one.page(after="b", limit=1)] == ["c"]
    with pytest.raises(SessionQuotaExceeded, match="globals"):
        one.save("", Delta(globals_set={"x": raw("y" * 200)}))
    one.close()
    two.close()


ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def change(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def test_clock_that_was_set_ends_no_session(path: Path) -> None:
    store = SessionStore(path, SessionLimits())
    create(store, "box", ttl_s=600)
    store.close()
    # As it is when the clock was an hour behind at the first use, and is right now.
    hour = 3600 * SECOND_US
    change(path, f"UPDATE pool SET offset_us = offset_us - {hour}")
    change(path, f"UPDATE session SET expires_us = expires_us - {hour}")
    assert 599 < store.use("box").expires_in_s <= 600
    store.close()


def test_time_goes_on_while_the_machine_is_off(path: Path) -> None:
    store = SessionStore(path, SessionLimits())
    create(store, "short", ttl_s=600)
    create(store, "long", ttl_s=7200)
    store.close()
    # As it is an hour later, after a start: the boot clock is smaller than it was.
    change(path, f"UPDATE pool SET seen_us = {2**60}")
    change(path, f"UPDATE session SET expires_us = expires_us - {3600 * SECOND_US}")
    assert [session.id for session in store.page()] == ["long"]
    store.close()


COUNTING = """
import sys
from pathlib import Path
from cordata.pool.shared.sessions import Delta, SessionStore
from cordata.pool.shared.spec import SessionLimits

store = SessionStore(Path(sys.argv[1]), SessionLimits())
for number in range(int(sys.argv[2])):
    store.use("box", worker=sys.argv[3])
    store.save("box", Delta(count={"calls": 1}))
    print(number, flush=True)
"""


def test_processes_that_count_at_the_same_time_lose_nothing(path: Path) -> None:
    store = SessionStore(path, SessionLimits())
    create(store, "box")
    command = [sys.executable, "-c", COUNTING, str(path), "150"]
    children = [
        watched(subprocess.Popen([*command, str(number)], stdout=subprocess.DEVNULL, env=ENVIRON))
        for number in range(3)
    ]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    assert store.use("box").counters == {"calls": 450}
    store.close()


def test_what_was_saved_survives_a_killed_process(path: Path) -> None:
    store = SessionStore(path, SessionLimits())
    create(store, "box")
    command = [sys.executable, "-c", COUNTING, str(path), "1000000", "1"]
    child = watched(subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRON))
    assert child.stdout is not None
    for _ in range(20):
        last = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    last = int(([b"%d" % last, *child.stdout.read().splitlines()])[-1])
    child.wait(timeout=60)
    child.stdout.close()
    # The one that was being saved may be there, too.
    assert store.use("box").counters["calls"] in (last + 1, last + 2)
    store.close()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 1000, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_damaged_file_is_put_aside(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    store = SessionStore(path, SessionLimits())
    create(store, "box")
    [aside] = path.parent.glob("sessions.db.damaged-*")
    assert aside.read_bytes() == content
    assert "was put aside" in caplog.text
    store.close()


def test_file_of_another_version_is_put_aside(path: Path) -> None:
    first = SessionStore(path, SessionLimits())
    create(first, "box")
    first.close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    store = SessionStore(path, SessionLimits())
    assert store.page() == []
    assert len([*path.parent.glob("sessions.db.damaged-*")]) == 1
    store.close()


def test_file_that_was_deleted_in_use_is_made_anew(path: Path) -> None:
    store = SessionStore(path, SessionLimits())
    create(store, "box")
    for name in os.listdir(path.parent):
        (path.parent / name).unlink()
    with pytest.raises(SessionNotFound):
        store.use("box")
    create(store, "box")
    other = SessionStore(path, SessionLimits())
    assert other.use("box").id == "box"
    other.close()
    store.close()


def test_full_disk_fails_what_changes_and_nothing_else(path: Path) -> None:
    store = SessionStore(path, SessionLimits())
    create(store, "box", set={"a": raw(1)})
    store.close()
    limit = 65_536  # more than SQLite's index of the log, which it makes anew, takes
    code = f"""
import resource, signal, sys
from pathlib import Path
from msgspec import Raw
from cordata.errors import PoolUnavailable
from cordata.pool.shared.sessions import Delta, SessionStore
from cordata.pool.shared.spec import SessionLimits
store = SessionStore(Path(sys.argv[1]), SessionLimits())
store.use("box")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
try:
    store.save("box", Delta(set={{"a": Raw(b"\\xc4\\xff" + b"x" * 255)}} | {{
        f"n{{n}}": Raw(b"\\xc4\\xff" + b"x" * 255) for n in range(1000)}}))
except PoolUnavailable as error:
    print("refused", "not available" in str(error))
print(bytes(store.use("box", worker="1").data["a"]))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.save("box", Delta(count={{"healed": 1}}))
print(store.use("box").counters)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["refused True", "b'\\x01'", "{'healed': 1}"]


@needs_root
def test_full_disk_fails_no_call_that_only_reads_in_a_process_that_opens_the_file(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        first = SessionStore(disk / "sessions.db", SessionLimits())
        create(first, "box", set={"a": raw(1)}, worker="0")
        fill(disk / "filler")
        second = SessionStore(disk / "sessions.db", SessionLimits())
        assert plain(second.use("box").data) == {"a": 1}
        with pytest.raises(PoolUnavailable, match="full"):
            for number in range(1000):  # until the log has no room any more
                second.save("box", Delta(set={"a": raw(number)}))
        assert second.use("box").id == "box"
        second.close()
        first.close()


def test_directory_that_cannot_be_made_is_the_pools_unavailability(tmp_path: Path) -> None:
    (tmp_path / "pool").write_text("a file where the directory would be")
    store = SessionStore(tmp_path / "pool" / "sessions.db", SessionLimits())
    with pytest.raises(PoolUnavailable, match="sessions are not available"):
        store.globals()
