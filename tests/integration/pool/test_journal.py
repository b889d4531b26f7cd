"""The file of sessions, cut and damaged anywhere: what is read is the longest whole beginning."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from cordata.core.pool.record import MAGIC, Change, Changed, GlobalsChanged, Put, Removed, Touched
from cordata.errors import ConfigError
from cordata.pool.server.journal import Journal, Replay


def value(text: str) -> Raw:
    return Raw(msgspec.msgpack.encode(text))


RECORDS: list[Change] = [
    Put(id="a", v=1, ttl=60.0, x=10**15, d={"n": value("one")}),
    Changed(id="a", v=2, x=10**15, set={"n": value("two")}, cnt={"calls": 3}),
    GlobalsChanged(1, {"rate": value("seven")}),
    Touched({"a": 10**15}),
    Removed("a"),
]


def write(directory: Path) -> list[int]:
    """The records, and the size of the file after each."""
    journal = Journal(directory)
    journal.replay(lambda change: None)
    sizes = []
    for change in RECORDS:
        journal.append([change])
        journal.flush()
        sizes.append(journal.status()["bytes"])
    journal.close()
    return sizes


def read(directory: Path) -> tuple[list[bytes], Replay]:
    """What comes out, written down at once: the journal's views do not last."""
    journal = Journal(directory)
    found: list[bytes] = []
    replay = journal.replay(lambda change: found.append(msgspec.msgpack.encode(change)))
    journal.close()
    return found, replay


WRITTEN = [msgspec.msgpack.encode(change) for change in RECORDS]


def test_file_gives_back_what_was_written(tmp_path: Path) -> None:
    sizes = write(tmp_path)
    found, replay = read(tmp_path)
    assert found == WRITTEN
    assert replay == Replay(records=5)
    file = tmp_path / "sessions.journal"
    assert file.stat().st_size == sizes[-1]
    assert file.stat().st_mode & 0o777 == 0o600


def test_file_cut_anywhere_gives_the_whole_records_before_it(tmp_path: Path) -> None:
    sizes = write(tmp_path)
    file = tmp_path / "sessions.journal"
    whole = file.read_bytes()
    for end in range(len(MAGIC), len(whole) + 1):
        file.write_bytes(whole[:end])
        count = sum(size <= end for size in sizes)
        found, replay = read(tmp_path)
        assert found == WRITTEN[:count]
        good = [len(MAGIC), *sizes][count]
        assert replay.dropped_bytes == end - good
        assert file.stat().st_size == good


def test_file_with_any_damaged_byte_is_read_up_to_the_record_before(tmp_path: Path) -> None:
    sizes = write(tmp_path)
    file = tmp_path / "sessions.journal"
    whole = file.read_bytes()
    for at in range(len(MAGIC), len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        file.write_bytes(damaged)
        found, _ = read(tmp_path)
        assert found == WRITTEN[: sum(size <= at for size in sizes)]


def test_rewritten_file_has_the_snapshot_and_what_came_meanwhile(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.replay(lambda change: None)
    journal.append(RECORDS)
    journal.flush()
    many = [
        Put(id=f"s{n}", v=n, ttl=60.0, x=10**15, d={"n": value("x" * 1000)}) for n in range(200)
    ]
    assert journal.begin(many)
    assert not journal.step()
    late = Changed(id="s0", v=500, x=10**15, cnt={"calls": 1})
    journal.append([late])
    journal.flush()
    while not journal.step():
        pass
    last = Removed("s1")
    journal.append([last])
    journal.flush()
    journal.close()
    found, replay = read(tmp_path)
    assert sorted(found) == sorted(msgspec.msgpack.encode(one) for one in [*many, late, last])
    assert replay.dropped_bytes == 0
    assert not (tmp_path / "sessions.journal.new").exists()


def test_rewrite_ends_though_more_comes_than_a_slice_holds(tmp_path: Path) -> None:
    """Else a client that updates without a pause fills the disk: the file grows in both places."""
    journal = Journal(tmp_path)
    journal.replay(lambda change: None)
    live = [
        Put(id=f"s{n}", v=n, ttl=60.0, x=10**15, d={"n": value("x" * 10_000)}) for n in range(400)
    ]
    more = [Changed(id="s0", v=500, x=10**15, set={"n": value("y" * 10_000)})] * 50
    journal.append(live)
    journal.flush()
    journal.begin(live)
    steps = 0
    while not journal.step():
        steps += 1
        journal.append(more)
        journal.flush()
    assert steps <= 5  # of four megabytes, while two and a half came
    journal.close()


def test_manager_that_dies_in_a_rewrite_finds_the_old_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.replay(lambda change: None)
    journal.append(RECORDS[:2])
    journal.begin(RECORDS[2:3] * 3)
    journal.append(RECORDS[3:4])
    journal.flush()
    (tmp_path / "copy").mkdir()
    for name in ("sessions.journal", "sessions.journal.new"):  # as kill -9 would leave them
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    journal.close()
    found, replay = read(tmp_path / "copy")
    assert found == [*WRITTEN[:2], WRITTEN[3]]
    assert replay.dropped_bytes == 0


def test_directory_of_another_manager_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(ConfigError, match="another pool uses"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_older_file_is_put_aside_when_its_disk_comes_late(tmp_path: Path) -> None:
    directory = tmp_path / "disk" / "pool"
    journal = Journal(directory)
    assert journal.degraded
    assert journal.replay(lambda change: None) == Replay()
    journal.append(RECORDS[:1])  # is not kept: it is in memory only
    journal.flush()
    assert not journal.begin(RECORDS[:1])
    directory.mkdir(parents=True)
    write(directory)
    former = (directory / "sessions.journal").read_bytes()
    assert journal.begin(RECORDS[3:4])
    assert journal.step()
    assert (journal.degraded, journal.status()["records"]) == (False, 0)
    journal.close()
    assert read(directory)[0] == WRITTEN[3:4]
    assert (directory / "sessions.former").read_bytes() == former


def test_directory_that_may_not_be_made_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/proc/pool cannot be used"):
        Journal(Path("/proc/pool"))
    (tmp_path / "pool").touch()
    with pytest.raises(ConfigError, match="pool cannot be used: "):
        Journal(tmp_path / "pool")
