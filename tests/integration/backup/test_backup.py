"""Backup and restore on both stores: complete, exact, and refused when it would harm."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.integration.backup.counter import HOLD
from tests.integration.backup.places import KEY, SECRET, Load, Place, filled, place
from tests.integration.cli.command import ROOT
from tests.integration.postgres.parts import Wire
from tests.integration.server.running import PATIENCE_S
from tests.integration.store.parts import needs_root, small_disk
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched
from tests.waiting import until

from cordata.backup import sqlite
from cordata.backup.archive import STORE, read_manifest
from cordata.backup.postgres import connected
from cordata.config.sections import StoreConfig

STORES = ("sqlite", "postgres")
#: Of the time in the names of what is moved aside.
FORM = "%Y%m%dT%H%M%SZ"
PARTIAL = ".cordata-backup-*"


@pytest.fixture(params=STORES)
def urls(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two stores of one kind, both empty."""
    if request.param == "sqlite":
        return "", ""
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.create_database()), server.url(server.create_database())


def modes(directory: Path) -> set[tuple[bool, int]]:
    found = [directory, *directory.rglob("*")]
    return {(path.is_dir(), path.stat().st_mode & 0o777) for path in found}


def test_all_that_was_acknowledged_is_restored_and_handled_once_when_workers_write_meanwhile(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    old, copy, hold = place(tmp_path / "old", urls[0]), tmp_path / "copy", tmp_path / "hold"
    hold.touch()
    with old.serve(**{HOLD: str(hold)}) as running:
        load = Load(running)
        with load.sending():
            until(lambda: len(load.acknowledged) >= 50, "50 events")
            before = set(load.acknowledged)
            done = old.backup(copy)
            assert done.returncode == 0, done
            after = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > after, "a write after the backup")
        hold.unlink()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    assert modes(copy) == {(True, 0o700), (False, 0o600)}
    assert list(tmp_path.glob(PARTIAL)) == []
    # Nothing secret is in it as it is.
    whole = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())
    assert KEY.encode() not in whole and SECRET.encode() not in whole

    # On another host: other paths, another database, no master-key.
    new = place(tmp_path / "new", urls[1])
    new.key.unlink()
    checked = new.restore(copy, "--dry-run")
    assert checked.returncode == 0 and "can be restored here" in checked.stdout, checked
    assert not new.key.exists() and not new.database.exists()
    done = new.restore(copy)
    assert done.returncode == 0, done
    assert new.key.read_text() == f"{KEY}\n" and new.key.stat().st_mode & 0o777 == 0o600
    events = {event for (event,) in new.rows("SELECT id FROM event")}
    assert before <= events and len(events) < len(load.acknowledged)
    waiting = new.number("SELECT count(*) FROM message")
    assert waiting > 0  # whose handlers waited
    term = new.number("SELECT term FROM lease")
    assert term > old.number("SELECT term FROM lease") + 900
    with new.serve() as running:
        running.ready()
        until(lambda: new.number("SELECT count(*) FROM message") == 0, "all events handled")
        assert new.number("SELECT term FROM lease") > term
        running.get("/")
        until(lambda: new.number("SELECT count(*) FROM effect") > len(events), "a new event")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    effects = [event for (event,) in new.rows("SELECT event_id FROM effect")]
    assert len(effects) == len(set(effects)) == len(events) + 1 and events < set(effects)
    # A backup of what was restored is as good.
    assert new.backup(tmp_path / "again").returncode == 0


def test_restore_onto_a_running_service_is_refused(tmp_path: Path, urls: tuple[str, str]) -> None:
    host, copy = place(tmp_path / "host", urls[0]), tmp_path / "copy"
    with host.serve() as running:
        running.get("/")
        assert host.backup(copy).returncode == 0
        done = host.restore(copy, "--replace")
        assert done.returncode == 1 and ("running" in done.stderr or "in use" in done.stderr), done
        os.kill(running.pid_of("primary"), signal.SIGKILL)  # a worker is enough
        done = host.restore(copy, "--replace")
        assert done.returncode == 1 and ("running" in done.stderr or "in use" in done.stderr), done
        running.get("/")
        running.signal(signal.SIGTERM)
        running.wait()
    assert host.number("SELECT count(*) FROM event") == 2


def test_old_store_is_moved_aside_and_only_when_it_was_asked_for(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    host, copy = filled(tmp_path / "host", urls[0]), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    with host.serve() as running:
        running.get("/")
        running.signal(signal.SIGTERM)
        running.wait()
    host.key.write_text("6b" * 32 + "\n")
    done = host.restore(copy)
    assert done.returncode == 1 and "--replace" in done.stderr
    host.key.write_text(f"{KEY}\n")
    done = host.restore(copy)
    assert done.returncode == 1 and "--replace" in done.stderr
    assert host.number("SELECT count(*) FROM event") == 1

    host.key.write_text("6b" * 32 + "\n")
    done = host.restore(copy, "--replace", "--json")
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    assert host.number("SELECT count(*) FROM event") == 0
    assert host.key.read_text() == f"{KEY}\n"
    key, store = said["old_key"], said["old_store"]
    assert Path(key).read_text() == "6b" * 32 + "\n" and Path(key).parent == host.directory
    if host.url:
        assert host.number(f'SELECT count(*) FROM "{store}".event') == 1
        # What lies aside is in no further backup.
        assert host.backup(tmp_path / "next").returncode == 0
        dump = (tmp_path / "next/store.dump").read_bytes()
        assert b"before-restore" not in dump
    else:
        assert Place(host.config, "").database.with_name(Path(store).name).exists()


def damage(path: Path) -> None:
    """Flip one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damaged_backup_is_refused(tmp_path: Path, urls: tuple[str, str]) -> None:
    host, copy = filled(tmp_path / "host", urls[0]), tmp_path / "copy"
    new = place(tmp_path / "new", urls[1])
    assert host.backup(copy).returncode == 0
    [store] = copy.glob("store.*")
    for name in (store.name, "credentials.sealed", "configuration/cordata.toml"):
        whole = (copy / name).read_bytes()
        damage(copy / name)
        done = new.restore(copy)
        assert done.returncode == 1 and f"{name} has another checksum" in done.stderr, done
        (copy / name).write_bytes(whole[:-1])
        done = new.restore(copy)
        assert done.returncode == 1 and f"{name} has " in done.stderr and "bytes" in done.stderr
        (copy / name).unlink()
        done = new.restore(copy)
        assert done.returncode == 1 and name in done.stderr
        (copy / name).write_bytes(whole)
    manifest = (copy / "manifest.json").read_text()
    for wrong in (manifest[:-10], manifest.replace('"format": 1', '"format": 2'), "[]", ""):
        (copy / "manifest.json").write_text(wrong)
        done = new.restore(copy)
        assert done.returncode == 1 and "manifest.json" in done.stderr, done
        assert "looks like a bug" not in done.stderr
    (copy / "manifest.json").unlink()
    assert "is no backup" in new.restore(copy).stderr
    assert not new.database.exists() or new.url
    (copy / "manifest.json").write_text(manifest)
    assert new.restore(copy).returncode == 0


def test_backup_of_a_newer_program_is_refused(tmp_path: Path, urls: tuple[str, str]) -> None:
    host, copy = filled(tmp_path / "host", urls[0]), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    manifest = json.loads((copy / "manifest.json").read_text())
    newer = {"component": "cordata", "number": 1000, "name": "contract", "digest": "0" * 64}
    manifest["migrations"].append(newer)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = place(tmp_path / "new", urls[1]).restore(copy)
    assert done.returncode == 78 and "cordata 1000_contract" in done.stderr, done
    newer["number"] = 2  # this program could run it, but the new one may have data there
    manifest["cordata"] = "9.8.7"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = place(tmp_path / "second", urls[1]).restore(copy)
    assert done.returncode == 78 and "newer than this program" in done.stderr, done
    assert "cordata 0002_contract" in done.stderr and "cordata 9.8.7" in done.stderr
    newer["number"], newer["component"] = 1, "other"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = place(tmp_path / "third", urls[1]).restore(copy)
    assert done.returncode == 1 and "tables of other" in done.stderr, done


def test_backup_of_the_other_kind_of_store_is_refused(tmp_path: Path, database: str) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    done = place(tmp_path / "new", database).restore(copy)
    assert done.returncode == 1 and "the backup is of SQLite" in done.stderr


def test_passphrase_and_what_it_means_to_leave_the_credentials_out(tmp_path: Path) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    new = place(tmp_path / "new")
    (new.directory / "phrase").write_text("another\n")
    done = new.restore(copy)
    assert done.returncode == 1 and "does not open" in done.stderr
    done = new.run("restore", copy)
    assert done.returncode == 78 and "no passphrase" in done.stderr
    assert host.run("backup", tmp_path / "none").returncode == 78
    assert not (tmp_path / "none").exists()
    # The credential stands in for the file, as in the timer's service.
    (new.key.parent / "backup-passphrase").write_text(f"{SECRET}\n")
    assert new.run("restore", copy).returncode == 0

    without = tmp_path / "without"
    done = host.run("backup", "--without-credentials", without)
    assert done.returncode == 0 and "cannot be opened" in done.stderr
    assert not (without / "credentials.sealed").exists()
    done = place(tmp_path / "third").run("restore", without)
    assert done.returncode == 0 and "master-key" not in done.stderr, done
    done = place(tmp_path / "fourth", key="6b" * 32).run("restore", without)
    assert done.returncode == 0 and "is not that of the backup" in done.stderr


class Terminal:
    """A command whose controlling terminal is this test."""

    def __init__(self, *words: str | Path) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self.shown = ""
        self.process = watched(
            subprocess.Popen(
                [sys.executable, "-c", _ON_TERMINAL, *map(str, words)],
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        )
        os.close(theirs)

    def type(self, prompt: str, text: str) -> None:
        """Answer a prompt."""
        while prompt not in self.shown.rpartition("\n")[2]:
            self._read()
        os.write(self._ours, f"{text}\n".encode())
        self.shown += "\n"

    def ended(self) -> int:
        """Its exit code, all output read."""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while True:
                self._read()
        os.close(self._ours)
        return self.process.wait(PATIENCE_S)

    def _read(self) -> None:
        assert select.select([self._ours], [], [], PATIENCE_S)[0], self.shown
        self.shown += os.read(self._ours, 4096).decode()


#: Takes its stdin as its controlling terminal first.
_ON_TERMINAL = (
    "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " from cordata.cli import main; main()"
)


def test_passphrase_is_asked_for_twice_at_a_terminal_and_never_shown(tmp_path: Path) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    terminal = Terminal("backup", "--config", host.config, copy)
    for text in (SECRET, "another", SECRET, SECRET):
        terminal.type(": ", text)
    assert terminal.ended() == 0, terminal.shown
    assert "do not match" in terminal.shown and SECRET not in terminal.shown
    sealed = json.loads((copy / "credentials.sealed").read_text())
    assert (sealed["kdf"], sealed["ops"], sealed["mem_bytes"]) == ("argon2id", 3, 256 << 20)
    terminal = Terminal("restore", "--dry-run", "--replace", "--config", host.config, copy)
    terminal.type(": ", SECRET)
    assert terminal.ended() == 0, terminal.shown
    assert "can be restored here" in terminal.shown and SECRET not in terminal.shown


def test_restore_says_what_redis_may_hold(tmp_path: Path, redis_url: str) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    new = place(tmp_path / "new")
    with new.config.open("a") as file:
        file.write(f'[broker]\nurl = "{redis_url}"\n')
    done = new.restore(copy)
    assert done.returncode == 0 and "Redis may hold events" in done.stderr
    assert "not as in the backup: configuration/cordata.toml" in done.stdout


def test_credentials_of_the_host_stay_but_for_the_master_key(tmp_path: Path) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    for name in ("smtp-password", "store-password"):
        (host.key.parent / name).write_text("of the old host\n")
    assert host.backup(copy).returncode == 0
    new = place(tmp_path / "new")
    (new.key.parent / "store-password").write_text("of the new host\n")
    done = new.restore(copy)
    assert done.returncode == 0 and "left as it is here: store-password" in done.stdout
    assert (new.key.parent / "store-password").read_text() == "of the new host\n"
    assert (new.key.parent / "smtp-password").read_text() == "of the old host\n"


def test_target_that_is_not_empty_is_refused_and_old_backups_are_removed(tmp_path: Path) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    copy.mkdir()
    (copy / "mine").touch()
    done = host.backup(copy)
    assert done.returncode == 1 and "is not empty" in done.stderr
    (copy / "mine").unlink()
    assert host.backup(copy).returncode == 0

    dated = tmp_path / "dated"
    for _ in range(3):
        done = host.backup(dated, "--keep", "2", "--json")
        assert done.returncode == 0, done
        (dated / "20200101T000000Z").mkdir(exist_ok=True)  # no backup: it stays
    newest = Path(json.loads(done.stdout)["directory"])
    found = sorted(one.name for one in dated.iterdir())
    assert len(found) == 3 and found[0] == "20200101T000000Z" and found[-1] == newest.name
    assert host.restore(newest, "--dry-run", "--replace").returncode == 0


@needs_root
def test_nothing_is_left_when_the_disk_is_full(tmp_path: Path, urls: tuple[str, str]) -> None:
    host = filled(tmp_path / "host", urls[0])
    with small_disk(tmp_path / "disk", "16k") as disk:
        done = host.backup(disk / "copy")
        assert done.returncode == 1, done
        assert "full" in done.stderr or "No space" in done.stderr, done
        assert "looks like a bug" not in done.stderr
        assert list(disk.iterdir()) == []


def test_nothing_that_looks_like_a_backup_is_left_when_it_is_killed(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    host, backups = filled(tmp_path / "host", urls[0]), tmp_path / "backups"
    backups.mkdir()
    words = ["backup", "--config", host.config, "--passphrase-file", host.directory / "phrase"]
    process = watched(
        subprocess.Popen(
            [sys.executable, "-m", "cordata", *map(str, words), str(backups / "copy")],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
        )
    )
    until(lambda: list(backups.glob(f"{PARTIAL}/store.*")), "the copy's begin")
    process.kill()
    process.wait()
    assert not (backups / "copy").exists()
    [left] = backups.iterdir()
    assert "is no backup" in host.restore(left).stderr
    assert host.backup(backups / "copy").returncode == 0
    assert [one.name for one in backups.iterdir()] == ["copy"]


@pytest.mark.parametrize("end", ["", "-wal"])
def test_store_and_master_key_are_the_old_ones_when_the_store_cannot_be_moved(
    tmp_path: Path, end: str
) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    host.key.write_text("6b" * 32 + "\n")
    host.write("INSERT INTO effect VALUES ('kept', 1)")
    host.database.with_name("cordata.db-wal").touch()  # as if a process had been killed
    for seconds in range(120):  # in the way of the name that a file of the old store would get
        moment = datetime.now(UTC) + timedelta(seconds=seconds)
        (host.database.parent / f"cordata.db.before-restore-{moment:{FORM}}{end}").mkdir()
    done = host.restore(copy, "--replace")
    assert done.returncode == 1 and "the restore failed" in done.stderr, done
    assert host.key.read_text() == "6b" * 32 + "\n"
    assert host.number("SELECT count(*) FROM effect") == 1
    assert not (host.database.parent / ".cordata.db.restoring").exists()


@pytest.mark.parametrize("old", [[b"kept"], []])
def test_store_is_the_old_one_when_its_directory_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: list[bytes]
) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    sha256 = read_manifest(copy).files[STORE["sqlite"]].sha256
    state = tmp_path / "state"
    state.mkdir()
    path = state / "cordata.db"
    for content in old:
        path.write_bytes(content)

    def fail(synced: Path) -> None:
        if synced.is_dir():
            raise OSError(errno.EIO, "it failed", str(synced))

    monkeypatch.setattr(sqlite, "sync", fail)
    with pytest.raises(OSError, match="it failed"):
        with sqlite.restoring(
            copy / STORE["sqlite"], sha256, path, state, ".old", now_s=0, draw=lambda *_: None
        ):
            pass
    left = [one for one in state.iterdir() if one.suffix != ".lock"]
    assert [one.read_bytes() for one in left] == old


@needs_root
def test_restore_leaves_nothing_when_the_disk_is_full(tmp_path: Path) -> None:
    host, copy = filled(tmp_path / "host"), tmp_path / "copy"
    assert host.backup(copy).returncode == 0
    new = place(tmp_path / "new")
    (new.directory / "state").rmdir()
    with small_disk(new.directory / "state", "64k") as disk:
        done = new.restore(copy)
        assert done.returncode == 1 and "No space" in done.stderr, done
        assert {path.name for path in disk.iterdir()} == {"write.lock", "primary.lock"}
    (new.directory / "state").mkdir(exist_ok=True)
    assert new.restore(copy).returncode == 0


def test_store_is_the_old_one_or_the_new_one_when_a_restore_is_killed(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    host, copy = filled(tmp_path / "host", urls[0]), tmp_path / "copy"
    host.fill(100_000)
    assert host.backup(copy).returncode == 0
    host.write("DELETE FROM effect WHERE number > 7")

    server: psycopg.Connection[tuple[int]] | None = None
    if host.url:  # one connection, to another database: the restore wants to be alone in its own
        server = psycopg.connect(host.url, dbname="postgres", autocommit=True)
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql' AND datname = %s"

    def begun() -> bool:
        if server:
            row = server.execute(asked, [conninfo_to_dict(host.url)["dbname"]]).fetchone()
            return row is not None and row[0] > 0
        return (host.directory / "state/.cordata.db.restoring").exists()

    words = ["restore", "--replace", "--config", host.config, "--passphrase-file"]
    words += [host.directory / "phrase", copy]
    for _ in range(10):
        process = watched(
            subprocess.Popen(
                [sys.executable, "-m", "cordata", *map(str, words)],
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
            )
        )
        while process.poll() is None and not begun():
            time.sleep(0.001)
        process.kill()
        if process.wait() == -signal.SIGKILL:
            break
        host.write("DELETE FROM effect WHERE number > 7")  # it was too fast
    else:
        raise AssertionError("it was never caught")
    if server:
        server.close()
        others = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        until(lambda: not host.number(f"{others} AND datname = current_database()"), "its end")
    assert host.number("SELECT count(*) FROM effect") in (7, 100_000)
    done = host.restore(copy, "--replace")
    assert done.returncode == 0, done
    assert host.number("SELECT count(*) FROM effect") == 100_000


#: Begins to change a database, and is killed when some of its pages are on disk.
_KILLED_IN_A_CHANGE = """
import os, signal, sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("PRAGMA cache_size = 1")
file.execute("BEGIN")
file.execute("UPDATE effect SET number = number + 1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_restore_is_complete_when_one_of_another_backup_was_killed_before(tmp_path: Path) -> None:
    """SQLite applies the journal that was left to any file of that name."""
    host, new = filled(tmp_path / "host"), place(tmp_path / "new")
    host.fill(5_000)
    assert host.backup(tmp_path / "small").returncode == 0
    host.fill(20_000)
    assert host.backup(tmp_path / "large").returncode == 0
    left = new.database.with_name(".cordata.db.restoring")
    shutil.copy(tmp_path / "small/store.db", left)
    subprocess.run([sys.executable, "-c", _KILLED_IN_A_CHANGE, left], check=False)
    assert left.with_name(f"{left.name}-journal").stat().st_size

    assert new.restore(tmp_path / "large").returncode == 0
    assert new.number("SELECT count(*) FROM effect") == 25_000
    assert new.rows("PRAGMA integrity_check") == [("ok",)]
    assert list(new.database.parent.glob(".cordata.db.restoring*")) == []


def test_password_of_the_server_reaches_its_programs_and_no_command_line(tmp_path: Path) -> None:
    with PostgresServer(password="opensesame") as server:
        names = [server.create_database() for _ in range(2)]
        urls = [server.url(name).replace(":opensesame@", "@") for name in names]
        hosts = [
            place(tmp_path / name, url) for name, url in zip(("old", "new"), urls, strict=True)
        ]
        for host in hosts:
            (host.key.parent / "store-password").write_text("opensesame\n")
        assert hosts[0].run("migrate").returncode == 0
        assert hosts[0].backup(tmp_path / "copy").returncode == 0
        store = StoreConfig(url=urls[0])
        with connected(store, "opensesame", tmp_path) as found:
            assert "opensesame" not in found.conninfo
        done = hosts[1].restore(tmp_path / "copy")
        assert done.returncode == 0, done
        assert server.execute("SELECT count(*) FROM migration", database=names[1]) == [(2,)]


def test_restore_changes_nothing_when_the_server_refuses_a_statement(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    name = postgres.create_database()
    host = filled(tmp_path / "host", postgres.url(name))
    host.rows("SELECT 1")
    postgres.execute("CREATE TABLE kept AS SELECT 7 AS seven", database=name)
    postgres.execute("CREATE TEXT SEARCH CONFIGURATION odd (COPY = simple)", database=name)
    assert host.backup(tmp_path / "copy").returncode == 0
    other = postgres.create_database()
    # A name that the dump will want, and that is no table.
    postgres.execute("CREATE TEXT SEARCH CONFIGURATION odd (COPY = simple)", database=other)
    new = place(tmp_path / "new", postgres.url(other))
    new.key.unlink()
    done = new.restore(tmp_path / "copy")
    assert done.returncode == 1 and "refused the restore" in done.stderr, done
    assert new.rows("SELECT to_regclass('event')") == [(None,)]
    assert not new.key.exists()


def _psql_of(url: str) -> int:
    """The process id of the psql that connects to the port in `url`."""
    port = f"port={urlsplit(url).port}"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program, *words = path.read_text(errors="replace").split("\0")
            if program.endswith("/psql") and port in " ".join(words).split():
                return int(path.parent.name)
    raise LookupError(port)


@pytest.mark.parametrize("how", ["cut", "killed"])
async def test_nobody_is_told_that_nothing_was_restored_when_the_answer_to_the_commit_is_lost(
    tmp_path: Path, postgres: PostgresServer, how: str
) -> None:
    host = filled(tmp_path / "host", postgres.url(postgres.create_database()))
    assert host.backup(tmp_path / "copy").returncode == 0
    url = postgres.url(postgres.create_database())
    async with Wire(postgres.port) as wire:
        new = place(tmp_path / "new", wire.url(url), key="6b" * 32)

        def look(data: bytes) -> bool | None:
            if b"COMMIT;" not in data:
                return None
            if how == "killed":
                os.kill(_psql_of(wire.url(url)), signal.SIGKILL)
            return True

        wire.look = look
        done = await asyncio.to_thread(new.restore, tmp_path / "copy", "--replace")
        assert done.returncode == 1 and "is not known" in done.stderr, done
        (old,) = new.key.parent.parent.glob("master-key.before-restore-*")
        assert "restore --replace` does it again" in done.stderr and str(old) in done.stderr
        # The key is that of the store, which is restored.
        assert new.key.read_text() == host.key.read_text()
        assert old.read_text() == "6b" * 32 + "\n"
        wire.look = lambda data: None
        done = await asyncio.to_thread(new.restore, tmp_path / "copy", "--replace")
        assert done.returncode == 0, done
        assert "before-restore" in done.stdout  # it had happened
