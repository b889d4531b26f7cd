"""A worker that cannot get up says why and answers 503: nobody is left waiting for an answer."""

from __future__ import annotations

import http.client
import json
import re
import signal
from pathlib import Path

import pytest
from tests.integration.server.running import PATIENCE_S, forked_server, free_address
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

#: SQLite's "write version": a newer one than it knows makes a file read-only, for root as well.
_WRITE_VERSION_AT = 18


def status_of(address: str, path: str = "/facts") -> tuple[int, bytes]:
    """Of one request; one that gets no answer fails."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_server_answers_503_while_the_store_takes_no_writes_and_heals(tmp_path: Path) -> None:
    with forked_server(tmp_path, workers=1) as running:
        running.ready()
        running.signal(signal.SIGINT)
        assert running.wait() == 0
    database = tmp_path / "cordata.db"
    assert not (tmp_path / "cordata.db-wal").exists()
    raw = bytearray(database.read_bytes())
    raw[_WRITE_VERSION_AT] = 3
    database.write_bytes(raw)
    address = free_address()
    with forked_server(tmp_path, "--listen", address, workers=1) as running:
        running.until_logged(r"worker@0 engine: messages wait: .*SQLITE_READONLY.*service's user")
        running.until_logged(r"primary store: the store takes no writes: .*service's user")
        status, body = status_of(address)
        document = json.loads(body)
        assert (status, document["error"]) == (503, "store_unavailable")
        assert document["message"] and document["request_id"]
        assert running.out == []
        raw[_WRITE_VERSION_AT] = 2
        database.write_bytes(raw)
        assert running.ready() == f"http://{address}"
        assert status_of(address)[0] == 200
        running.signal(signal.SIGINT)
        assert running.wait() == 0


def test_server_answers_and_names_the_setting_behind_an_old_pgbouncer(tmp_path: Path) -> None:
    with (
        PostgresServer() as postgres,
        postgres.database() as url,
        PgBouncer(postgres, pool_size=2) as proxy,
    ):
        if proxy.prepares:
            pytest.skip("this PgBouncer knows prepared statements")
        name = url.partition("?")[0].rpartition("/")[2]
        config = tmp_path / "cordata.toml"
        config.write_text(f'[store]\nurl = "{proxy.url(name)}"\nsession_url = "{url}"\n')
        address = free_address()
        options = ("--config", str(config), "--listen", address)
        with forked_server(tmp_path, *options, workers=2) as running:
            running.until_logged(r"already exists \(42P05\).*prepared_statements = false")
            # By luck a worker finds each of its statements where it was prepared.
            assert status_of(address)[0] in (200, 503)


def test_log_has_one_line_for_all_requests_refused_while_the_database_is_away(
    tmp_path: Path,
) -> None:
    with PostgresServer() as postgres, postgres.database() as url:
        config = tmp_path / "cordata.toml"
        config.write_text(f'[store]\nurl = "{url}"\nwrite_timeout_s = 2.0\n')
        with forked_server(tmp_path, "--config", str(config), workers=1) as running:
            address = running.ready().removeprefix("http://")
            assert status_of(address, "/publish")[0] == 200
            postgres.stop()
            statuses = [status_of(address, "/publish")[0] for _ in range(50)]
            assert statuses == [503] * 50
            assert status_of(address)[0] == 200  # what needs no store is served
            postgres.start()
            while (status := status_of(address, "/publish")[0]) != 200:
                statuses.append(status)
            running.until_logged("the lease of the primary is not held")
            running.signal(signal.SIGINT)
            assert running.wait() == 1  # of the primary
        # One a minute is a line; the worker says at its end how many there were besides.
        failed = running.logged(r"/publish from .* failed: 503")
        more = [re.search(r"([0-9]+) x 503", line) for line in running.logged("more requests in")]
        assert len(failed) <= 3
        assert len(failed) + sum(int(one[1]) for one in more if one) == len(statuses)
