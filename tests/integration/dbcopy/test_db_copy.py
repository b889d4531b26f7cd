"""`cordata db copy`: both directions, passes while rows change, killed and resumed, refused."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.integration.backup.counter import HOLD
from tests.integration.backup.places import APP as COUNTER
from tests.integration.backup.places import Place, filled, place
from tests.integration.cli.command import ROOT
from tests.integration.dbcopy.rows import contents, fill, next_number, schema
from tests.integration.server.guests import generic
from tests.integration.server.hubs import Hub
from tests.integration.server.managed import Managed, forked
from tests.integration.server.running import wait_gone
from tests.integration.store.parts import needs_root, small_disk
from tests.servers.postgres import PostgresServer
from tests.servers.process import children
from tests.servers.reaper import watched
from tests.servers.redis import RedisServer
from tests.waiting import until

HUB = "alpinehub.app:app"
FAMILY = "tests.integration.dbcopy.family:app"
PARENTS = "INSERT INTO parent (id, name, active) VALUES"


def copy(source: Place, target: Place, *options: str) -> subprocess.CompletedProcess[str]:
    """One pass."""
    return source.run("db", "copy", "--to", url_of(target), *options)


@contextlib.contextmanager
def copying(source: Place, target: Place, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A pass that is under way; killed at the end of the block if it still is."""
    words = ["db", "copy", "--config", source.config, "--to", url_of(target), *options]
    process = watched(
        subprocess.Popen(
            [sys.executable, "-m", "cordata", *map(str, words)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def url_of(store: Place) -> str:
    return store.url or f"sqlite://{store.database}"


def copied(source: Place, target: Place, *options: str) -> dict[str, dict[str, int]]:
    """What a pass did, by table."""
    done = copy(source, target, "--json", *options)
    assert done.returncode == 0, done
    found: dict[str, dict[str, int]] = json.loads(done.stdout)["tables"]
    return found


def wrote(tables: dict[str, dict[str, int]]) -> dict[str, tuple[int, int]]:
    """Rows written and deleted, of tables where there were any."""
    found = {name: (one["written"], one["deleted"]) for name, one in tables.items()}
    return {name: counts for name, counts in found.items() if any(counts)}


def family(tmp_path: Path, url: str, to: str) -> tuple[Place, Place]:
    """A store and where it moves to: "postgres", the database with this url, or "sqlite"."""
    urls = "", url
    source = filled(tmp_path / "source", urls[to == "sqlite"], app=FAMILY)
    return source, place(tmp_path / "target", urls[to == "postgres"], app=FAMILY)


def parents(count: int) -> str:
    """A statement that adds so many rows."""
    return (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        " INSERT INTO parent (name, note) SELECT 'name ' || i, 'note ' || i FROM n"
    )


def test_every_table_of_a_hub_is_the_same_there_and_back(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    old = filled(tmp_path / "old", app=HUB)
    fill(old, 250)
    before = contents(old)
    assert all(before.values()), [name for name, rows in before.items() if not rows]
    there = place(tmp_path / "there", postgres.url(postgres.create_database()), app=HUB)
    back = place(tmp_path / "back", app=HUB)
    empty = filled(tmp_path / "empty", postgres.url(postgres.create_database()), app=HUB)

    first = copied(old, there, "--finish")
    assert contents(there) == before and schema(there) == schema(empty)
    assert {name: one["rows"] for name, one in first.items()} == {
        name: len(rows) for name, rows in before.items()
    }
    assert there.run("migrate", "--check").returncode == 0
    second = copied(there, back, "--finish")
    assert contents(back) == before and schema(back) == schema(old)
    assert {name: one["sha256"] for name, one in first.items()} == {
        name: one["sha256"] for name, one in second.items()
    }
    assert contents(old) == before
    for one in (there, back):
        assert next_number(one, "alert_mail", "written_at", "1") == 251
    assert back.run("migrate", "--check").returncode == 0


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_rows_that_change_between_the_passes_are_in_the_copy(
    tmp_path: Path, postgres: PostgresServer, to: str
) -> None:
    source, target = family(tmp_path, postgres.url(postgres.create_database()), to)
    source.write(parents(2500))
    source.write(f"{PARENTS} (9001, 'A', true), (9002, 'B', true)")
    source.write(
        "INSERT INTO child (kind, number, done, parent_id) SELECT 'k', id, true, id FROM parent"
    )
    first = copied(source, target)
    assert wrote(first)["parent"] == (2502, 0) and wrote(first)["child"] == (2502, 0)
    done = target.run("migrate", "--check")
    assert done.returncode == 78 and "copy that is not finished" in done.stderr, done

    # Names go from one row to another, in both directions of the key, and to a new row.
    source.write("UPDATE parent SET name = 'C' WHERE id = 9001")
    source.write("UPDATE parent SET name = 'A' WHERE id = 9002")
    source.write("UPDATE parent SET name = 'old 1' WHERE id = 1")
    source.write(f"{PARENTS} (9003, 'name 1', true), (9004, 'B', true)")
    source.write("UPDATE parent SET note = NULL, score = 0.1 WHERE id BETWEEN 1200 AND 1210")
    source.write("DELETE FROM child WHERE number BETWEEN 700 AND 1900")
    source.write("DELETE FROM parent WHERE id = 800")
    expected = contents(source)
    changed = wrote(copied(source, target))
    assert changed["child"] == (0, 1201) and changed["parent"][0] >= 16, changed
    last = wrote(copied(source, target, "--finish"))
    assert "child" not in last, last  # it was the same already
    assert contents(target) == expected
    # Triggers and foreign keys are there again.
    target.write("INSERT INTO child (kind, number, done, parent_id) VALUES ('x', 1, true, 1)")
    assert target.number("SELECT count(*) FROM trace") == len(expected["trace"]) + 1
    fresh = filled(
        tmp_path / "fresh", target.url and postgres.url(postgres.create_database()), app=FAMILY
    )
    assert schema(target) == schema(fresh)
    done = copy(source, target)
    assert done.returncode == 78 and "was moved to" in done.stderr, done


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_copy_goes_on_after_it_was_killed(
    tmp_path: Path, postgres: PostgresServer, to: str
) -> None:
    name = postgres.create_database()
    source, target = family(tmp_path, postgres.url(name), to)
    source.write(parents(30_000))
    source.write(
        "INSERT INTO child (kind, number, done, parent_id) SELECT name, id, active, id FROM parent"
    )
    expected = contents(source)
    log = target.database.with_name("cordata.db-wal")
    sizes: set[int] = set()

    def writes() -> bool:
        """Whether it has written something since the last call."""
        if target.url:  # from another database: it wants to be alone in its own
            asked = (
                b"SELECT 1 FROM pg_stat_activity WHERE datname = %s AND query LIKE 'INSERT INTO%%'"
            )
            return watching.execute(asked, [name]).fetchone() is not None
        with contextlib.suppress(FileNotFoundError):  # SQLite removes it at the end
            sizes.add(log.stat().st_size)
        return len(sizes) > 2

    killed = 0
    with psycopg.connect(postgres.socket_url(), autocommit=True) as watching:
        for _ in range(6):
            sizes.clear()
            with copying(source, target, "--finish") as process:
                while process.poll() is None and not writes():
                    time.sleep(0.001)
            if process.returncode != -signal.SIGKILL:
                break  # it was faster, and is complete
            killed += 1
        else:
            rows = copied(source, target, "--finish")
            assert rows["parent"]["rows"] == 30_000
    assert killed > 0
    assert contents(target) == expected


#: A program that may have so much memory.
_LITTLE_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))
from cordata.cli import main
main()
"""


def test_memory_is_bounded_when_rows_are_large(tmp_path: Path, postgres: PostgresServer) -> None:
    source = filled(tmp_path / "source", app=FAMILY)
    target = place(tmp_path / "target", postgres.url(postgres.create_database()), app=FAMILY)
    source.write(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)"
        " INSERT INTO parent (name, note) SELECT 'name ' || i, hex(zeroblob(1000000)) FROM n"
    )
    words = ["db", "copy", "--config", str(source.config), "--to", target.url, "--finish"]
    done = subprocess.run(
        [sys.executable, "-c", _LITTLE_MEMORY, *words],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    assert target.number("SELECT sum(length(note)) FROM parent") == 200_000_000


def test_what_would_harm_is_refused(tmp_path: Path, postgres: PostgresServer) -> None:
    source = filled(tmp_path / "source", app=FAMILY)
    source.write(parents(3))
    for wrong in (place(tmp_path / "same", app=FAMILY), source):
        done = copy(source, wrong)
        assert done.returncode == 1 and "both databases are SQLite" in done.stderr, done
    for wrong_url, words in (
        ("mysql://x", "--to is not the address of a store"),
        ("sqlite://x", "--to does not name a file"),
        ("postgresql://u:secret@h/d", "--to contains a password"),
    ):
        done = source.run("db", "copy", "--to", wrong_url)
        assert done.returncode == 2 and words in done.stderr, done
        assert "[store]" not in done.stderr and "secret" not in done.stderr, done
    used = filled(tmp_path / "used", postgres.url(postgres.create_database()), app=FAMILY)
    done = copy(source, used)
    assert done.returncode == 1 and "it has tables" in done.stderr, done
    assert used.run("migrate", "--check").returncode == 0

    target = place(tmp_path / "target", postgres.url(postgres.create_database()), app=FAMILY)
    with psycopg.connect(target.url):
        done = copy(source, target)
        assert done.returncode == 1 and "in use: 1 other sessions" in done.stderr, done
    copied(source, target)
    other = filled(tmp_path / "other", app=FAMILY)
    done = copy(other, target, "--finish")
    assert done.returncode == 1 and f"copy of another store: {source.database}" in done.stderr, done
    # The schema of another program, or none.
    done = source.run("db", "copy", "--to", target.url, "--app", COUNTER)
    assert done.returncode == 78 and "older than this program: counter 0001" in done.stderr, done
    done = copy(filled(tmp_path / "hub", app=HUB), target, "--app", FAMILY)
    assert done.returncode == 78 and "0001_all" in done.stderr, done
    target.write("DELETE FROM migration WHERE component = 'family'")  # the program has a new one
    done = copy(source, target)
    assert done.returncode == 78 and "older than this program: family 0001" in done.stderr, done
    done = copy(place(tmp_path / "none", app=FAMILY), target)
    assert done.returncode == 1 and "no store to copy" in done.stderr, done
    done = copy(target, place(tmp_path / "further", app=FAMILY))
    assert done.returncode == 78 and "not finished" in done.stderr, done


def test_table_that_the_other_database_cannot_have_is_refused(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.url(postgres.create_database())
    counter = filled(tmp_path / "counter")
    done = copy(counter, Place(counter.config, url))
    assert done.returncode == 0, done  # without rows
    assert "next: end `cordata server` and its jobs\n" in done.stdout, done
    counter.write("INSERT INTO effect VALUES ('e', 1)")
    done = copy(counter, Place(counter.config, url))
    assert done.returncode == 1 and "effect: it has no primary key" in done.stderr, done

    source = filled(tmp_path / "source", app=FAMILY)
    source.write(
        "INSERT INTO parent (name, note) VALUES ('a', 'fine'), ('b', CAST(x'6100' AS TEXT))"
    )
    target = place(tmp_path / "target", postgres.url(postgres.create_database()), app=FAMILY)
    done = copy(source, target)
    assert done.returncode == 1 and "refused a row of parent" in done.stderr, done
    assert "looks like a bug" not in done.stderr
    source.write("DELETE FROM parent WHERE name = 'b'")
    assert copied(source, target, "--finish")["parent"]["rows"] == 1


def test_positions_beyond_the_last_event_are_set_back_to_it(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """PostgreSQL gives numbers to transactions that roll back; SQLite gives them again."""
    source = filled(tmp_path / "source", postgres.url(postgres.create_database()), app=FAMILY)
    source.write(
        "INSERT INTO stored_event (position, stream, version, category, bucket, type, payload,"
        " created_at) VALUES (7, 's-1', 1, 's', 0, 't', '{}', 1)"
    )
    source.write(
        "INSERT INTO subscription (name, category, partitions, origin, created_at)"
        " VALUES ('n', 's', 2, 9, 1)"
    )
    source.write(
        "INSERT INTO subscription_partition (subscription, partition, position, term)"
        " VALUES ('n', 0, 9, 1), ('n', 1, 5, 1)"
    )
    source.write(
        'INSERT INTO consumer_group ("group", type, since, registered_at, present_at)'
        " VALUES ('g', 't', 3, 1, 1)"
    )
    target = place(tmp_path / "target", app=FAMILY)
    copied(source, target, "--finish")
    assert target.rows("SELECT position FROM subscription_partition") == [(7,), (5,)]
    assert target.rows("SELECT origin FROM subscription") == [(7,)]
    assert target.rows("SELECT since FROM consumer_group WHERE \"group\" = 'g'") == [(0,)]


def test_copy_goes_on_after_the_connection_was_lost(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    source = filled(tmp_path / "source", app=FAMILY)
    source.write(parents(30_000))
    name = postgres.create_database()
    target = place(tmp_path / "target", postgres.url(name), app=FAMILY)
    ended = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        " AND query LIKE 'INSERT INTO%%'"
    )
    with copying(source, target) as process:
        while process.poll() is None and not postgres.execute(ended, [name]):
            time.sleep(0.001)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and "the database server:" in said, said
    assert copied(source, target, "--finish")["parent"]["rows"] == 30_000


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_nothing_starts_on_the_old_store_until_it_is_opened_again(
    tmp_path: Path, postgres: PostgresServer, to: str
) -> None:
    source, target = family(tmp_path, postgres.url(postgres.create_database()), to)
    source.write(parents(10))
    copied(source, target, "--finish")
    for words in (("migrate",), ("server", "--listen", "127.0.0.1:0"), ("outbox", "list")):
        done = source.run(*words)
        assert done.returncode == 78, done
        moved = f"the store was moved to {target.url or target.database} at 20"
        assert moved in done.stderr and "`cordata db reopen` is the way back" in done.stderr, done
    done = source.backup(tmp_path / "backup")
    assert done.returncode == 78 and "was moved to" in done.stderr, done
    assert not (tmp_path / "backup").exists()
    # Nor is it copied to a third one.
    further = place(
        tmp_path / "further", target.url and postgres.url(postgres.create_database()), app=FAMILY
    )
    # Nor again to the same one, which is complete.
    for other in (further, target):
        done = copy(source, other, "--finish")
        assert done.returncode == 78 and "was moved to" in done.stderr, done

    done = source.run("db", "reopen")
    assert done.returncode == 2 and "--yes" in done.stderr, done
    assert source.run("migrate", "--check").returncode == 78
    done = source.run("db", "reopen", "--yes")
    assert done.returncode == 0 and f"moved to {target.url or target.database} at" in done.stdout
    assert source.run("migrate", "--check").returncode == 0
    done = source.run("db", "reopen", "--yes")
    assert done.returncode == 0 and "it was not moved" in done.stdout, done


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_last_pass_fails_when_the_service_was_started_meanwhile(
    tmp_path: Path, postgres: PostgresServer, to: str
) -> None:
    """Else its workers would write to the old store after the last pass."""
    name = postgres.create_database()
    source, target = family(tmp_path, postgres.url(name), to)
    source.write(parents(30_000))
    copied(source, target)
    source.write("UPDATE parent SET note = 'new'")
    # From another database: the pass wants to be alone in its own.
    asked = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND query LIKE '%%\"parent\"%%'"
    with copying(source, target, "--finish") as process:
        until(lambda: postgres.execute(asked, [name]), "a page")
        process.send_signal(signal.SIGSTOP)
        with source.serve() as running:
            running.until_logged("primary is ready")
            process.send_signal(signal.SIGCONT)
            _has_found_service(process)
            running.ready()
    _finish_later(source, target)


def test_last_pass_waits_for_a_command_that_is_about_to_end(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """It may be `cordata status`, after a pass of hours."""
    name = postgres.create_database()
    source, target = family(tmp_path, postgres.url(name), "sqlite")
    source.write(parents(30_000))
    session = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND query LIKE"
    with copying(source, target, "--finish") as process:
        until(lambda: postgres.execute(f"{session} '%%\"parent\"%%'", [name]), "a page")
        process.send_signal(signal.SIGSTOP)
        with psycopg.connect(source.url):
            process.send_signal(signal.SIGCONT)
            looks = f"{session} '%%pg_stat_activity%%' AND state LIKE 'idle in%%'"
            until(lambda: process.poll() is not None or postgres.execute(looks, [name]), "a look")
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said


def _has_found_service(process: subprocess.Popen[str]) -> None:
    """The last pass fails."""
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert "in use: " in said or "the service is running" in said, said


def _finish_later(source: Place, target: Place) -> None:
    """The source is still the store; then it moves."""
    assert source.run("migrate", "--check").returncode == 0
    assert target.run("migrate", "--check").returncode == 78
    copied(source, target, "--finish")
    assert contents(target) == contents(source)


def test_last_pass_from_postgres_fails_when_the_service_was_started_just_before_the_mark(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Its worker has found no mark, and waits for its first write."""
    name = postgres.create_database()
    source, target = family(tmp_path, postgres.url(name), "sqlite")
    source.write(parents(10))
    # The pass waits at the mark until the worker waits.
    source.write(
        """CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM migration WHERE component = 'db copy --finish')
            AND NOT EXISTS (SELECT FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event_type = 'Lock') LOOP
            PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
        END LOOP;
        RETURN NULL; END $$"""
    )
    source.write(
        "CREATE TRIGGER hold BEFORE DELETE ON migration FOR EACH STATEMENT EXECUTE FUNCTION hold()"
    )
    marks = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND query LIKE 'DELETE FROM m%%'"
    with copying(source, target, "--finish") as process:
        until(lambda: postgres.execute(marks, [name]), "the mark")
        with _worker(source) as worker:
            _has_found_service(process)
            worker.until_ready()
    source.write("DROP FUNCTION hold CASCADE")
    _finish_later(source, target)


def test_last_pass_from_sqlite_fails_when_the_service_was_started_just_before_the_mark(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """Its worker has found no mark, and waits for its first write."""
    name = postgres.create_database()
    source, target = family(tmp_path, postgres.url(name), "postgres")
    source.write(parents(10))
    # The pass waits shortly before the mark as long as some session has this advisory lock.
    hold = """CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711) LOOP
            PERFORM pg_sleep(0.01);
        END LOOP; END $$"""
    postgres.execute(hold, database=name)
    trigger = "ddl_command_start WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION hold()"
    postgres.execute(f"CREATE EVENT TRIGGER hold ON {trigger}", database=name)
    with psycopg.connect(postgres.url(), autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        session = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND"
        drops = f"{session} query LIKE 'DROP TABLE db%%'"
        waits = f"{session} state LIKE 'idle in%%' AND clock_timestamp() > state_change + '0.3 s'"
        with copying(source, target, "--finish") as process:
            until(lambda: postgres.execute(drops, [name]), "the pass")
            # SQLite's lock of who writes (WAL_WRITE_LOCK): the pass waits for it at the mark.
            with open(f"{source.database}-shm", "r+b") as writers:
                fcntl.lockf(writers, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 120)
                holder.execute("SELECT pg_advisory_unlock(4711)")
                until(lambda: postgres.execute(waits, [name]), "the mark")
                process.send_signal(signal.SIGSTOP)
                with _worker(source) as worker:
                    until(lambda: _is_awaited(source.database.with_name("write.lock")), "a write")
                    writers.close()
                    process.send_signal(signal.SIGCONT)
                    _has_found_service(process)
                    worker.until_ready()
    _finish_later(source, target)


def _worker(source: Place) -> contextlib.AbstractContextManager[Managed]:
    """A worker alone, whose first write follows its look for the mark."""
    with source.config.open("a") as file:
        file.write('[worker]\nservices = ["engine"]\n')
    return forked(source.config, "worker", "0")


def _is_awaited(lock: Path) -> bool:
    """Whether a process waits for the lock of a file."""
    waiting = f"-> FLOCK .*:{lock.stat().st_ino} "
    return re.search(waiting, Path("/proc/locks").read_text()) is not None


def test_last_pass_goes_on_when_it_ended_after_the_old_store_was_marked(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    source = filled(tmp_path / "source", app=FAMILY)
    target = place(tmp_path / "target", postgres.url(postgres.create_database()), app=FAMILY)
    source.write(parents(10))
    copied(source, target)
    # Fails at the COMMIT of the target, which comes last.
    target.write(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not yet'; END $$"
    )
    target.write(
        "CREATE CONSTRAINT TRIGGER refuse AFTER DELETE ON migration DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    done = copy(source, target, "--finish")
    assert done.returncode == 1 and "not yet" in done.stderr, done
    done = source.run("migrate", "--check")
    assert done.returncode == 78 and "was moved to" in done.stderr, done
    for words in (("migrate", "--check"), ("db", "reopen", "--yes")):
        done = target.run(*words)
        assert done.returncode == 78 and "copy that is not finished" in done.stderr, done

    target.write("DROP FUNCTION refuse CASCADE")
    copied(source, target, "--finish")
    assert target.run("migrate", "--check").returncode == 0
    assert contents(target) == contents(source)
    assert source.run("migrate", "--check").returncode == 78


@needs_root
def test_last_pass_fails_when_the_copy_is_not_the_same(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    source = filled(tmp_path / "source", app=FAMILY)
    target = place(tmp_path / "target", postgres.url(postgres.create_database()), app=FAMILY)
    source.write(parents(10))
    copied(source, target)
    # Something there changes what is written.
    target.write(
        "CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.note := 'other'; RETURN NEW; END $$"
    )
    target.write(
        "CREATE TRIGGER other BEFORE INSERT OR UPDATE ON parent FOR EACH ROW"
        " EXECUTE FUNCTION other()"
    )
    target.write("ALTER TABLE parent ENABLE ALWAYS TRIGGER other")
    source.write("UPDATE parent SET score = 0.1 WHERE id = 7")
    done = copy(source, target, "--finish")
    assert done.returncode == 1, done
    assert "rows of parent are not the same in the copy" in done.stderr
    assert "a value has another form there" in done.stderr
    # It is no store until a last pass succeeds.
    assert target.run("migrate", "--check").returncode == 78


def test_copy_goes_on_after_the_disk_was_full(tmp_path: Path, postgres: PostgresServer) -> None:
    source = filled(tmp_path / "source", postgres.url(postgres.create_database()), app=FAMILY)
    source.write(parents(30_000))
    target = place(tmp_path / "target", app=FAMILY)
    target.database.parent.rmdir()
    with small_disk(target.database.parent, "2m") as disk:
        done = copy(source, target, "--finish")
        assert done.returncode == 1 and "the disk is full" in done.stderr, done
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        assert copied(source, target, "--finish")["parent"]["rows"] == 30_000
        assert contents(target) == contents(source)


def test_hub_goes_on_where_it_was_moved_to(tmp_path: Path, postgres: PostgresServer) -> None:
    name = postgres.create_database()
    url = postgres.url(name)
    hub = Hub(tmp_path / "hub")
    source, there = Place(hub.config, ""), Place(hub.config, url)
    with hub._stack:
        hub.start()
        _book(hub, 1, 40)
        assert copy(source, there).returncode == 0
        _book(hub, 41, 80)
        done = copy(source, there, "--finish")
        assert done.returncode == 1 and "the service is running" in done.stderr, done
        assert hub.stop() == 0
        ids = hub.rows("SELECT id FROM reservation ORDER BY id")
        numbers = (
            hub.number("SELECT max(id) FROM inbox"),
            hub.number("SELECT max(position) FROM event"),
        )
        last = copied(source, there, "--finish")
        assert last["reservation"]["rows"] == 80

        hub.config.write_text(hub.config.read_text() + f'[store]\nurl = "{url}"\n')
        hub._query = lambda sql: postgres.execute(sql, database=name)
        hub.start()
        assert hub.rows("SELECT id FROM reservation ORDER BY id") == ids
        _book(hub, 70, 90)
        assert hub.number("SELECT count(*) FROM reservation") == 90
        assert hub.number("SELECT max(id) FROM inbox") > numbers[0]
        assert hub.number("SELECT max(position) FROM event") > numbers[1]
        # The service runs, now on the other side.
        back = place(tmp_path / "back", app=HUB)
        done = copy(there, back, "--finish")
        assert done.returncode == 1 and "in use" in done.stderr, done
        assert hub.stop() == 0


@pytest.mark.parametrize("to", ["sqlite", "postgres"])
def test_events_in_redis_are_handled_once_where_the_store_was_moved_to(
    tmp_path: Path, postgres: PostgresServer, redis: RedisServer, to: str
) -> None:
    urls = "", postgres.url(postgres.create_database())
    source = place(tmp_path / "source", urls[to == "sqlite"])
    target = place(tmp_path / "target", urls[to == "postgres"])
    for one in (source, target):
        one.config.write_text(one.config.read_text() + f'[broker]\nurl = "{redis.url}"\n')
    hold = tmp_path / "hold"
    hold.touch()
    with source.serve(**{HOLD: str(hold)}) as running:
        running.ready()
        ids = {running.get("/")["event"] for _ in range(60)}
        direct = children(running.process.pid)
        pids = [*direct, *(pid for one in direct for pid in children(one))]
        until(lambda: _entries(redis) == 60 and _pending(redis) > 0, "entries with a worker")
        for pid in (running.process.pid, *pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait()
        wait_gone(pids)
    assert source.number("SELECT count(*) FROM effect") == 0

    copied(source, target, "--finish")
    hold.unlink()
    with target.serve() as running:
        running.ready()
        ids |= {running.get("/")["event"] for _ in range(10)}
        until(lambda: target.number("SELECT count(*) FROM effect") >= 70, "all effects")
        running.signal(signal.SIGINT)
        assert running.wait() == 0
    effects = [row[0] for row in target.rows("SELECT event_id FROM effect")]
    assert len(effects) == 70 and {*effects} == ids


def _entries(redis: RedisServer) -> int:
    return int(redis.execute("XLEN", "cordata:stream:counted"))


def _pending(redis: RedisServer) -> int:
    return int(redis.execute("XPENDING", "cordata:stream:counted", "counter.add")["pending"])


def _book(hub: Hub, first: int, last: int) -> None:
    for number in range(first, last + 1):
        assert hub.post(*generic(number))[0] == 200
    events: Callable[[], bool] = lambda: hub.number("SELECT count(*) FROM message") == 0  # noqa: E731
    until(events, "all events handled")
