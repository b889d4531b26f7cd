"""A wrong password in a credential: who is refused says so with the next step, and not which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.running import forked_server
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

WRONG = "hunter two2"


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with PostgresServer(password="right") as running:
        yield running


def configured(directory: Path, text: str, name: str, secret: str | None) -> Path:
    path = write_config(directory, text)
    (directory / "credentials").mkdir()
    if secret is not None:
        (directory / "credentials" / name).write_text(f"{secret}\n")
    return path


def of_store(directory: Path, database: PostgresServer, secret: str | None) -> Path:
    url = database.url().replace(":right@", "@")
    return configured(directory, f'[store]\nurl = "{url}"\n', "store-password", secret)


@pytest.mark.parametrize("command", [("outbox", "list"), ("migrate",), ("job", "count")])
@pytest.mark.parametrize(
    ("secret", "said"), [(WRONG, "password authentication failed"), (None, "no password supplied")]
)
def test_command_says_what_to_do_when_the_password_is_wrong(
    tmp_path: Path,
    database: PostgresServer,
    command: tuple[str, ...],
    secret: str | None,
    said: str,
) -> None:
    path = of_store(tmp_path, database, secret)
    done = cordata(*command, "--config", str(path))
    assert done.returncode == (69 if "job" in command else 1)
    assert said in done.stderr and "that the credential store-password" in done.stderr
    assert "restart the unit after a change" in done.stderr
    assert "hunter" not in done.stderr and "Traceback" not in done.stderr


def test_server_says_what_to_do_and_waits_when_the_password_is_wrong(
    tmp_path: Path, database: PostgresServer
) -> None:
    path = of_store(tmp_path, database, WRONG)
    with forked_server(None, "--config", str(path), app=None, workers=1) as running:
        for role in ("worker@0", "primary"):
            running.until_logged(
                rf"ERROR +{role} store: .*password authentication failed.*credential store-password"
            )
        (tmp_path / "credentials" / "store-password").write_text("right\n")
        running.ready()
        assert "hunter" not in running.log


def test_server_says_what_to_do_when_the_password_of_redis_is_wrong(tmp_path: Path) -> None:
    with RedisServer(password="right") as redis:
        text = f'[broker]\nurl = "{redis.url.replace(":right@", "")}"\n'
        path = configured(tmp_path, text, "redis-password", WRONG)
        with forked_server(None, "--config", str(path), app=None, workers=1) as running:
            running.until_logged(
                r"Redis is unavailable: invalid username.*credential redis-password"
            )
            assert "hunter" not in running.log
