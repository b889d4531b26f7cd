"""`cordata server --test-mode`: every worker handles what is there, then all end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.cli.service import told
from tests.integration.server.chain import app
from tests.integration.server.running import forked_server
from tests.servers.fixtures import Servers
from tests.servers.redis import RedisServer

from cordata import Tx, connect

APP = "tests.integration.server.chain:app"
#: A retry that were waited for would outlast the test.
SLOW = "[engine]\nretry_first_s = 600.0\nretry_max_s = 3600.0\n"


def prepared(directory: Path, more: str = "") -> Path:
    config = write_config(directory, SLOW + more, app=APP)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    return config


def publish(config: Path, type_: str, *payloads: Mapping[str, Any], **options: Any) -> None:
    async def main() -> None:
        async with connect(app, config) as ctx:

            async def unit(tx: Tx) -> None:
                for payload in payloads:
                    await tx.publish(type_, payload, **options)

            await ctx.run(unit)

    asyncio.run(main())


def run(config: Path, *options: str, workers: int = 1) -> tuple[int, str]:
    """Exit code and log."""
    with forked_server(
        None, "--config", str(config), "--test-mode", *options, app=None, workers=workers
    ) as running:
        code = running.wait()
    assert running.out == []
    return code, running.log


def entries(config: Path) -> Counter[tuple[str, str]]:
    items = told(config, "outbox", "list", "--limit", "1000")["items"]
    return Counter((item["type"], item["state"]) for item in items)


@pytest.mark.parametrize("workers", [1, 3])
def test_empty_store_is_the_end(tmp_path: Path, workers: int) -> None:
    config = write_config(tmp_path, SLOW, app=APP)
    code, log = run(config, workers=workers)
    assert code == 0, log
    assert log.count("nothing is left; this worker handled 0 messages") == workers


@pytest.mark.parametrize("workers", [1, 3])
def test_chains_and_retries_are_followed_to_their_end(tmp_path: Path, workers: int) -> None:
    follow(prepared(tmp_path), workers)


@pytest.mark.parametrize(
    "kind",
    ["postgres", "postgres behind a proxy", "sqlite and redis", "postgres and redis"],
)
def test_chains_are_followed_by_several_workers_on_servers(
    tmp_path: Path, servers: Servers, kind: str
) -> None:
    with ExitStack() as stack:
        more = ""
        if "postgres" in kind:
            url = stack.enter_context(servers.postgres().database())
            more += behind(servers, url) if "proxy" in kind else f'[store]\nurl = "{url}"\n'
        if "redis" in kind:
            more += f'[broker]\nurl = "{servers.redis().url}"\n'
        config = prepared(tmp_path, more)
        follow(config, 3)
        publish(config, "hopeless", {}, {})
        code, log = run(config, workers=3)
        assert code == 1 and "went to the dead letter" in log, log
        groups = Counter(letter["group"] for letter in told(config, "dlq", "list")["items"])
        assert groups == {"chain.hopeless": 2}, log
        again = told(config, "dlq", "replay", "--group", "chain.hopeless")
        assert again["count"] == 2
        code, log = run(config, workers=2)
        assert code == 1 and "went to the dead letter" in log, log
        letters = told(config, "dlq", "list", "--group", "chain.hopeless")["items"]
        [letter] = told(config, "dlq", "show", letters[0]["event_id"])
        assert [failure["attempt"] for failure in letter["history"]] == [1, 1]


def behind(servers: Servers, url: str) -> str:
    """The store at `url` through a proxy that shares sessions out, a transaction at a time."""
    proxy = servers.pgbouncer()
    prepared = "true" if proxy.prepares else "false"
    return (
        f'[store]\nurl = "{proxy.url(url.partition("?")[0].rpartition("/")[2])}"\n'
        f'session_url = "{url}"\nprepared_statements = {prepared}\n'
    )


def test_redis_is_reached_over_tls_with_its_password(tmp_path: Path) -> None:
    with RedisServer(tls=True, password="a-long-secret") as redis:
        url = redis.url.replace(f":{redis.password}@", "")
        credentials = tmp_path / "credentials"
        credentials.mkdir()
        (credentials / "redis-password").write_text(redis.password)
        config = prepared(tmp_path, f'[broker]\nurl = "{url}"\nprefix = "hub"\n')
        publish(config, "step", {"left": 4})
        code, log = run(config, workers=2)
        assert code == 0, log
        assert entries(config)["counted", "done"] == 1
        assert any(key.startswith("hub") for key in redis.execute("KEYS", "*"))
        assert redis.password not in cordata("config", "show", "--config", str(config)).stdout


@pytest.mark.parametrize("was_one", [False, True])
def test_key_that_is_no_stream_holds_up_nothing(
    tmp_path: Path, servers: Servers, was_one: bool
) -> None:
    """Its events go through the store, and it is said what to do."""
    redis = servers.redis()
    config = prepared(tmp_path, f'[broker]\nurl = "{redis.url}"\nprefix = "taken"\n')
    done = Counter[tuple[str, str]]()
    if was_one:
        publish(config, "step", {"left": 0})
        assert run(config)[0] == 0
        done = entries(config)
        redis.execute("DEL", "taken:stream:step")
    redis.execute("SET", "taken:stream:step", "somebody else's")
    publish(config, "step", {"left": 0})
    publish(config, "flaky", {})
    code, log = run(config, workers=2)
    assert code == 0, log
    assert "flaky ended at attempt 3" in log
    assert "Redis refuses taken:stream:step: WRONGTYPE" in log, log
    assert "rename or delete it" in log and "choose another [broker] prefix" in log
    assert log.count("WRONGTYPE") <= 6  # not once for each attempt
    found = entries(config) - done
    assert found["step", "done"] == found["flaky", "done"] == found["counted", "done"] == 1
    assert redis.execute("GET", "taken:stream:step") == "somebody else's"


def follow(config: Path, workers: int) -> None:
    publish(config, "step", *[{"left": n} for n in (0, 1, 5, 20)])
    publish(config, "flaky", {}, {})
    publish(config, "step", {"left": 0}, delay_s=3600.0)
    code, log = run(config, workers=workers)
    assert code == 0, log
    assert log.count("flaky ended at attempt 3") == 2
    assert entries(config) == {
        ("step", "done"): 30,
        ("step", "pending"): 1,  # its time has not come
        ("arrived", "done"): 4,
        ("counted", "done"): 4,
        ("flaky", "done"): 2,
    }


def test_retry_that_an_earlier_run_left_behind_is_not_waited_for(tmp_path: Path) -> None:
    config = prepared(tmp_path, '[worker]\nservices = ["engine"]\n')
    publish(config, "flaky", {})
    with forked_server(None, "--config", str(config), app=None, workers=1) as running:
        running.until_logged("chain.flaky: attempt 1 of 4")
    code, log = run(config)
    assert code == 0, log
    assert "flaky ended at attempt 3" in log and "chain.flaky: attempt 2 of 4" in log


def test_dead_letters_of_this_run_are_exit_1_and_those_of_others_are_not(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    publish(config, "hopeless", {})
    publish(config, "step", {"left": 3})
    code, log = run(config, workers=2)
    assert code == 1
    assert "1 message went to the dead letter (`cordata dlq list` names them" in log
    assert entries(config)["counted", "done"] == 1  # the rest is handled
    code, log = run(config, workers=2)
    assert code == 0, log
    assert len(told(config, "dlq", "list")["items"]) == 1


@pytest.mark.parametrize("broker", ["store", "redis"])
def test_other_worker_takes_over_from_one_that_its_handler_kills(
    tmp_path: Path, servers: Servers, broker: str
) -> None:
    on_redis = broker == "redis"
    config = prepared(tmp_path, f'[broker]\nurl = "{servers.redis().url}"\n' if on_redis else "")
    publish(config, "deadly", {})
    code, log = run(config, workers=2)
    assert code == 1  # a worker crashed
    assert "was killed" in log or "SIGKILL" in log
    assert told(config, "dlq", "list")["items"] == []
    [entry] = told(config, "outbox", "list")["items"]
    groups = told(config, "outbox", "show", entry["event_id"])["groups"]
    assert [group["state"] for group in groups] == ["handled"]


@pytest.mark.parametrize("broker", ["store", "redis"])
def test_message_that_kills_each_worker_is_a_dead_letter(
    tmp_path: Path, servers: Servers, broker: str
) -> None:
    on_redis = broker == "redis"
    config = prepared(tmp_path, f'[broker]\nurl = "{servers.redis().url}"\n' if on_redis else "")
    publish(config, "deadly", {"always": True})
    code, log = run(config, workers=3)
    # Not that a message went to the dead letter: the last worker may find it there when it is up.
    assert code == 1 and ("was killed" in log or "SIGKILL" in log), log
    [letter] = told(config, "dlq", "list")["items"]
    assert (letter["group"], letter["error"]) == ("chain.deadly", "ProcessDied")
