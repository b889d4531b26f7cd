"""A copy of a PostgreSQL store by pg_dump, and its way back by pg_restore and psql.

pg_dump      one snapshot, which the manifest's migrations are read from, too
pg_restore   writes SQL --> one transaction in psql, whose COMMIT this process writes last
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cordata.backup.archive import TERMS, Draw, Manifest, private_file
from cordata.backup.owner import acting_as_owner
from cordata.config.sections import StoreConfig
from cordata.errors import CordataError, Unclear
from cordata.store.migrate import MigrationId
from cordata.store.postgres.address import addresses
from cordata.store.postgres.connector import connect_error
from cordata.store.postgres.fault import ConnectionLost, server_unreachable

#: Where Debian has the programs of each major version.
_DEBIAN = Path("/usr/lib/postgresql")
_LOOK_S = 0.2
_PIECE_BYTES = 1 << 18
#: Begins the names of schemas that a restore moved aside.
ASIDE = "before-restore-"
#: As `store/postgres/lease.py` locks it.
_LOCK_PRIMARY = "SELECT pg_try_advisory_lock(hashtextextended('cordata lease primary', 0))"
_OTHERS = (
    "SELECT count(*), string_agg(DISTINCT coalesce(host(client_addr), 'this host'), ', ')"
    " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)
_SCHEMAS = (
    "SELECT nspname FROM pg_namespace AS n WHERE nspname !~ '^pg_'"
    f" AND nspname <> 'information_schema' AND NOT starts_with(nspname, '{ASIDE}')"
    " AND EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid) ORDER BY 1"
)
#: Exit code of psql.
_CONNECTION_LOST = 2
#: pg_restore 17 writes this for every server; older ones do not know it.
_NEW_SETTING = b"SET transaction_timeout = 0;\n"


@dataclass(frozen=True, slots=True)
class Server:
    """A connection to the store, and how programs get one."""

    connection: psycopg.Connection[Any]
    #: Without the password.
    conninfo: str
    #: What programs get beside the environment of this process.
    environment: Mapping[str, str]
    #: For peer authentication, programs run as the user that the service has.
    state_dir: Path

    @property
    def major(self) -> int:
        """Major version of the server."""
        return self.connection.info.server_version // 10_000

    def run(self, arguments: Sequence[str | Path], **streams: Any) -> subprocess.Popen[bytes]:
        """Start a program that connects."""
        with acting_as_owner(self.state_dir):
            root = os.getuid() == 0
            return subprocess.Popen(
                [*arguments, f"--dbname={self.conninfo}"],
                env={**os.environ, **self.environment},
                user=os.geteuid() if root else None,
                group=os.getegid() if root else None,
                **streams,
            )


@contextmanager
def connected(config: StoreConfig, password: str | None, state_dir: Path) -> Iterator[Server]:
    """A session of its own, never through a proxy. Raises: StoreUnavailable."""
    params = dict(addresses(config, password)[1].params)
    try:
        with acting_as_owner(state_dir):
            connection = psycopg.connect(autocommit=True, **params)
    except psycopg.Error as error:
        found = connect_error(error)
        raise (
            server_unreachable(str(found)) if isinstance(found, ConnectionLost) else found
        ) from None
    with connection:
        secret = params.pop("password", None)
        if "," in f"{params.get('host', '')}{params.get('hostaddr', '')}":
            # The programs go where this session went.
            params.pop("hostaddr", None)
            params |= {"host": connection.info.host, "port": connection.info.port}
        environment = {"LC_ALL": "C.UTF-8"}
        if secret is not None:
            environment["PGPASSWORD"] = str(secret)
        try:
            yield Server(connection, make_conninfo(**params), environment, state_dir)
        except psycopg.Error as error:
            text = " ".join(str(error).split())
            raise CordataError(f"the database server: {text}") from error


def programs(server_major: int) -> tuple[Path, int]:
    """The directory of pg_dump, pg_restore and psql for a server, and their major version.

    Raises: CordataError when there are none, or only older ones.
    """
    found = {int(one.parts[-3]): one.parent for one in _DEBIAN.glob("[0-9]*/bin/pg_dump")}
    if not found and (named := shutil.which("pg_dump")) is not None:
        said = subprocess.run([named, "--version"], capture_output=True, text=True, check=False)
        if version := re.search(r"\) (\d+)", said.stdout):
            found[int(version[1])] = Path(named).parent
    major = choose(found, server_major)
    return found[major], major


def choose(found: Mapping[int, object], server_major: int) -> int:
    """The oldest version that is not older than the server. Raises: CordataError."""
    hint = f"apt install postgresql-client-{server_major} (or a newer one)"
    if not found:
        raise CordataError("pg_dump, pg_restore and psql are not installed", hint=hint)
    fitting = [major for major in found if major >= server_major]
    if not fitting:
        raise CordataError(
            f"pg_dump is of PostgreSQL {max(found)}, the server of {server_major}: it takes the"
            " same version or a newer one",
            hint=hint,
        )
    return min(fitting)


def copy(server: Server, target: Path, draw: Draw) -> tuple[list[MigrationId], str, int]:
    """Dump the database as it is at this moment; writers are not blocked.

    Returns its migrations, the schema that holds the tables, and the major version of pg_dump.
    Raises: CordataError.
    """
    directory, major = programs(server.major)
    ask = server.connection.execute
    ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    ask("SET LOCAL idle_in_transaction_session_timeout = 0")
    schema, table, snapshot = _only(
        ask("SELECT current_schema(), to_regclass('migration')::text, pg_export_snapshot()")
    )
    if table is None:
        raise CordataError("there is no store to copy: the database has no tables of cordata")
    rows = ask("SELECT component, number, name, digest FROM migration").fetchall()
    arguments: list[str | Path] = [
        *(directory / "pg_dump", "--format=custom", "--no-password", f"--snapshot={snapshot}"),
        f'--exclude-schema="{ASIDE}"*',
    ]
    with open(private_file(target), "wb") as file:
        dump = server.run(arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE)
        with _ended(dump):
            while True:
                try:
                    _, said = dump.communicate(timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    draw(None, f"{target.stat().st_size:,} bytes dumped")
        if dump.returncode:
            raise CordataError(f"pg_dump failed: {_last(said)}")
    return [MigrationId(*row) for row in rows], str(schema), major


def check(path: Path, server_major: int, made_by: int) -> None:
    """Read the list of what a dump contains. Raises: CordataError."""
    directory, major = programs(max(server_major, made_by))
    done = subprocess.run(
        [directory / "pg_restore", "--list", path], capture_output=True, check=False
    )
    if done.returncode:
        raise CordataError(f"pg_restore {major} cannot read {path}: {_last(done.stderr)}")


def check_target(server: Server, schema: str, made_on: int, *, replace: bool) -> None:
    """Raises: CordataError if the database is in use, not empty, or not like the one copied."""
    if server.major < made_on:
        raise CordataError(
            f"the backup is of PostgreSQL {made_on}, this server is {server.major}",
            hint="restore it into the same version or a newer one",
        )
    require_unused(server)
    (own,) = _only(server.connection.execute("SELECT current_schema()"))
    if own != schema:
        raise CordataError(
            f"the backup's tables are in the schema {schema!r}, this database's go into {own!r}",
            hint=f"let the search_path of the role begin with {schema}",
        )
    if not replace and _schemas(server):
        raise CordataError(
            "the database is not empty",
            hint="--replace renames its schemas, and deletes nothing; or name an empty one",
        )


def require_unused(server: Server) -> None:
    """Take the lock of the primary, for as long as the session lasts. Raises: CordataError if other
    sessions are connected to the database.
    """
    # In a transaction the server would show the same sessions at each look.
    server.connection.execute("SELECT pg_stat_clear_snapshot()")
    count, hosts = _only(server.connection.execute(_OTHERS))
    if count or not _only(server.connection.execute(_LOCK_PRIMARY))[0]:
        raise CordataError(
            f"the database is in use: {count} other sessions, from {hosts or 'nowhere'}",
            hint="stop the service on all hosts, and close other sessions (psql, pg_dump)",
        )


@contextmanager
def restoring(
    server: Server, source: Path, manifest: Manifest, aside: str, *, now_s: int, draw: Draw
) -> Iterator[str | None]:
    """Restore a dump in one transaction, which is committed at the end of the block.

    Schemas that are there are renamed in it: `aside` stands before their names then. Yields their
    new names; None: there were none. `check_target` took the primary's lock, so none can lead
    meanwhile. Raises: CordataError, of which Unclear if the outcome of the COMMIT is not known.
    """
    directory, _ = programs(max(server.major, manifest.pg_dump))
    found = _schemas(server)
    moved = {name: f"{aside}-{name}" for name in found}
    begin = ["BEGIN;", r"\o /dev/null"]
    for name, new in moved.items():
        begin.append(f"ALTER SCHEMA {_quoted(name)} RENAME TO {_quoted(new)};")
    if "public" in moved:
        begin.append("CREATE SCHEMA public;")
    arguments: list[str | Path] = [directory / "psql", "-X", "-q", "-w", "--set=ON_ERROR_STOP=1"]
    psql = server.run(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with _ended(psql):
        _say(psql, "\n".join(begin))
        _pump(directory, source, psql, server.major, draw)
        lease = f"{_quoted(manifest.schema)}.lease"
        _say(psql, f"UPDATE {lease} SET term = greatest(term + {TERMS}, {now_s});")
        # Answered when all before it has succeeded.
        _say(psql, r"\echo restored")
        assert psql.stdout is not None
        if psql.stdout.readline() != b"restored\n":
            raise _failed(psql)
        yield ", ".join(moved.values()) or None
        _commit(psql)


def _pump(
    directory: Path, source: Path, psql: subprocess.Popen[bytes], server_major: int, draw: Draw
) -> None:
    """pg_restore's SQL into psql, and its end checked: one that broke off is not committed."""
    restore = subprocess.Popen(
        [
            *(directory / "pg_restore", "--no-owner", "--no-privileges", "--no-comments"),
            *("--file=-", source),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert restore.stdout is not None and restore.stderr is not None and psql.stdin is not None
    head, done, next_deadline = True, 0, 0.0
    with _ended(restore):
        while piece := restore.stdout.read(_PIECE_BYTES):
            if head and server_major < 17:
                piece = piece.replace(_NEW_SETTING, b"", 1)
            head = False
            try:
                psql.stdin.write(piece)
            except BrokenPipeError:
                raise _failed(psql) from None
            done += len(piece)
            if time.monotonic() >= next_deadline:
                next_deadline = time.monotonic() + _LOOK_S
                draw(None, f"{done:,} bytes restored")
        said = restore.stderr.read()
        if restore.wait():
            raise CordataError(f"pg_restore failed: {_last(said)}")


def _say(psql: subprocess.Popen[bytes], text: str) -> None:
    assert psql.stdin is not None
    try:
        psql.stdin.write(f"{text}\n".encode())
        psql.stdin.flush()
    except BrokenPipeError:
        raise _failed(psql) from None


def _commit(psql: subprocess.Popen[bytes]) -> None:
    """Raises: Unclear if the server may have committed; CordataError if it has refused."""
    _say(psql, "COMMIT;")
    try:
        _, said = psql.communicate()
    except KeyboardInterrupt:
        said = b"it was interrupted"
    killed = psql.returncode is None or psql.returncode < 0
    if killed or psql.returncode == _CONNECTION_LOST:
        raise Unclear(
            f"whether the restore was committed is not known: {_last(said)}",
            hint="`cordata restore --replace` does it again, which is right in both cases",
        )
    if psql.returncode:
        raise CordataError(f"the restore was not committed: {_last(said)}")


def _failed(psql: subprocess.Popen[bytes]) -> CordataError:
    """psql ended at the first error."""
    assert psql.stderr is not None
    return CordataError(
        f"the database server refused the restore: {_last(psql.stderr.read())}",
        hint="nothing was changed",
    )


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The process has ended after the block, whatever happened: psql without its COMMIT."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def _schemas(server: Server) -> list[str]:
    return [name for (name,) in server.connection.execute(_SCHEMAS).fetchall()]


def _only(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = cursor.fetchone()
    assert row is not None
    return row


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _last(said: bytes | None) -> str:
    """The errors of a program, in one line."""
    lines = (said or b"").decode(errors="replace").splitlines()
    return " ".join(" ".join(lines[-5:]).split())[:600] or "it said nothing"
