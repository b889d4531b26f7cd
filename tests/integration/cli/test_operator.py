"""`cordata outbox`, `dlq` and `migrate` beside a running service, and beside a stopped one.

tests/integration/engine/test_inspection.py has what they ask and change, on both stores.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli import service
from tests.integration.cli.command import cordata, write_config
from tests.integration.cli.mended import MENDED
from tests.integration.cli.mending import app
from tests.integration.cli.service import told
from tests.integration.engine.parts import known
from tests.integration.engine.stores import url_of
from tests.integration.server.managed import managed

from cordata import connect

SECRET = "Eva Muster"


def prepared(directory: Path) -> Path:
    text = f'[store]\nurl = "{url_of(directory)}"\n[worker]\nservices = ["engine"]\n'
    return write_config(directory, text, app="tests.integration.cli.mending:app")


def published(config: Path, count: int, *, delay_s: float = 0.0) -> list[str]:
    async def main() -> list[str]:
        async with connect(app, config) as ctx:
            return [
                await ctx.run(
                    lambda tx: tx.publish("order.made", {"guest": SECRET}, delay_s=delay_s)
                )
                for _ in range(count)
            ]

    return asyncio.run(main())


def known_groups(config: Path) -> None:
    """What the primary does at its start."""

    async def main() -> None:
        async with connect(app, config) as ctx:
            await known(ctx.store, app)

    asyncio.run(main())


def until(config: Path, *arguments: str, true: Callable[[list[Any]], bool]) -> list[Any]:
    """The items of a list once something is true of them."""
    found = service.until(config, *arguments, true=lambda found: true(found["items"]))
    return found["items"]  # type: ignore[no-any-return]


def test_dead_letter_is_seen_replayed_and_handled_once(state: Path) -> None:
    config = prepared(state)
    with service.running(config):
        first, second = published(config, 2)
        letters = until(config, "dlq", "list", true=lambda items: len(items) == 2)
        assert {letter["event_id"] for letter in letters} == {first, second}
        assert {letter["group"] for letter in letters} == {"shop.pack"}
        assert letters[0]["error"] == "ValueError"
        assert letters[0]["dead_at"].endswith("+00:00") and "payload" not in letters[0]

        table = cordata("dlq", "list", "--config", str(config))
        assert table.stdout.split()[:6] == ["EVENT", "ID", "GROUP", "TYPE", "ATTEMPTS", "DEAD"]
        assert first in table.stdout and SECRET not in table.stdout
        assert "ValueError" in table.stdout and "boxes" not in table.stdout
        shown = cordata("dlq", "show", first, "--config", str(config))
        assert SECRET in shown.stdout and "ATTEMPT  AT" in shown.stdout
        assert re.search(rf"worker-0@{re.escape(socket.gethostname())}\s", shown.stdout)
        assert "no boxes left\\x07" in shown.stdout  # nothing that a terminal would obey
        (letter,) = told(config, "dlq", "show", first)
        assert letter["payload"] == {"guest": SECRET}
        assert letter["error"] == "ValueError: no boxes left\x07"
        assert [one["attempt"] for one in letter["history"]] == [1]
        assert letter["history"][0]["owner"].startswith("worker-0")

        until(config, "outbox", "list", "--type", "order.thanked", true=lambda i: len(i) == 2)
        (state / "mended").touch()
        assert told(config, "dlq", "replay", first) == {"count": 1, "missing": []}
        until(config, "outbox", "list", "--type", "order.packed", true=bool)
        assert [one["event_id"] for one in told(config, "dlq", "list")["items"]] == [second]
        again = cordata("dlq", "replay", first, "--config", str(config))
        assert again.returncode == 1 and first in again.stderr

    assert told(config, "dlq", "replay", "--all")["count"] == 1  # nobody runs
    with service.running(config):
        until(config, "outbox", "list", "--type", "order.packed", true=lambda i: len(i) == 2)
    entry = told(config, "outbox", "show", first)
    assert entry["state"] == "done"
    assert {group["group"]: group["state"] for group in entry["groups"]} == {
        "shop.pack": "handled",
        "shop.thank": "handled",
    }
    assert len(told(config, "outbox", "list", "--type", "order.thanked")["items"]) == 2


def test_replay_has_one_group_do_it_again_when_it_is_told_to(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    (tmp_path / "mended").touch()
    with service.running(config):
        (event_id,) = published(config, 1)
        packed = ("outbox", "list", "--type", "order.packed")
        until(config, *packed, true=bool)
        until(config, "outbox", "list", "--state", "done", true=lambda i: len(i) == 3)
        replay = ("outbox", "replay", event_id)
        counts = {"messages": 0, "handled": 2, "waiting": 0, "dead": 0}
        assert told(config, *replay) == {"count": 1, **counts, "missing": []}
        assert told(config, "outbox", "replay", "--type", "order.made")["handled"] == 2
        again = (*replay, "--group", "shop.pack", "--again", "--config", str(config))
        asked = cordata(*again)
        assert asked.returncode == 2 and "REPEAT" in asked.stderr
        done = cordata(*again, "--yes")
        assert done.stdout == "1 checked: 1 message published again\n"
        until(config, *packed, true=lambda items: len(items) == 2)
        unknown = cordata("outbox", "replay", "--all", "--group", "x", "--config", str(config))
        assert (
            unknown.returncode == 1 and "hint: there are: shop.pack, shop.thank" in unknown.stderr
        )
        assert cordata("outbox", "replay", "none", "--config", str(config)).returncode == 1


def test_replay_says_why_it_published_nothing(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    assert cordata("migrate", "--config", str(config)).returncode == 0

    def replay(*words: str) -> str:
        done = cordata("outbox", "replay", *words, "--config", str(config))
        return f"{done.returncode} {done.stdout}{done.stderr}"

    (event_id,) = published(config, 1)
    nothing = "0 checked: no event matches; events that all groups have handled are deleted after"
    assert replay("--type", "order.mad").startswith(f"0 {nothing} [engine] retention_s")
    again = "0 1 checked: 0 messages published again, 2 not handled yet (`cordata outbox list"
    assert replay(event_id).startswith(again)
    with service.running(config):
        until(config, "dlq", "list", true=bool)
        (thanked,) = until(config, "outbox", "list", "--type", "order.thanked", true=bool)
        until(config, "outbox", "list", "--state", "dead", true=bool)
    assert replay("--type", "order.made") == (
        "0 1 checked: 0 messages published again, 1 handled already (--group GROUP --again repeats"
        " its effects), 1 given up as dead letters (`cordata dlq replay`)\n"
    )
    missing = "error: nothing to do for"
    found = replay("none", event_id)
    assert found.startswith("1 1 checked: 0 messages")
    assert f"{missing} none: no such event;" in found
    assert replay("--type", "order.thanked").startswith("0 1 checked: no consumer group handles")
    other = thanked["event_id"]
    assert replay(other, "--group", "shop.pack") == (
        f"1 0 checked\n{missing} {other}: it is order.thanked, which shop.pack does not handle\n"
    )


def test_retry_of_one_group_leaves_the_others_waiting(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    known_groups(config)
    named, other = published(config, 2, delay_s=3600)
    # An event that is named, then all of the group.
    for words, event_id in (([named], named), ([], other)):
        done = told(config, "outbox", "retry", *words, "--group", "shop.pack")
        assert done == {"count": 1, "missing": []}
        groups = told(config, "outbox", "show", event_id)["groups"]
        assert {group["group"]: group["state"] for group in groups} == {
            "shop.pack": "ready",
            "shop.thank": "scheduled",
        }


def test_group_is_listed_and_removed(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    with service.running(config):
        published(config, 1)
        until(config, "dlq", "list", true=bool)
        until(config, "outbox", "list", "--type", "order.thanked", true=bool)
    groups = {one["group"]: one for one in told(config, "group", "list")["items"]}
    assert set(groups) == {"shop.pack", "shop.thank"}
    counts = [groups["shop.pack"][name] for name in ("ready", "scheduled", "claimed", "dead")]
    assert counts == [0, 0, 0, 1] and groups["shop.pack"]["type"] == "order.made"
    unknown = cordata("group", "remove", "shop.wrap", "--yes", "--config", str(config))
    assert unknown.returncode == 1 and "there are: shop.pack, shop.thank" in unknown.stderr
    remove = ("group", "remove", "shop.pack", "--config", str(config))
    asked = cordata(*remove)
    assert asked.returncode == 2 and "1 dead letters" in asked.stderr
    assert cordata(*remove, "--yes").stdout == "1 messages deleted\n"
    assert cordata(*remove, "--yes").returncode == 1
    assert told(config, "dlq", "list")["items"] == []


def test_lists_are_narrowed_down(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    with service.running(config):
        (event_id,) = published(config, 1)
        until(config, "dlq", "list", true=bool)
    for options, count in (
        (["--error", "ValueError"], 1),
        (["--error", "KeyError"], 0),
        (["--since", "1h"], 1),
        (["--since", "2001-01-01", "--before", "2001-01-02T10:00"], 0),
        (["--since", "2001-01-01T00:00:00+02:00"], 1),
    ):
        assert len(told(config, "dlq", "list", *options)["items"]) == count, options
    for options, count in (
        (["--group", "shop.thank"], 1),
        (["--group", "shop.pack", "--state", "dead"], 1),
        (["--group", "other"], 0),
        (["--type", "order.made", "--since", "1h"], 1),
        (["--since", "2100-01-01"], 0),
        (["--state", "relayed"], 0),
    ):
        items = told(config, "outbox", "list", *options)["items"]
        assert len(items) == count, options
        assert [item["event_id"] for item in items] == [event_id] * count


def test_drop_and_purge_ask_and_nobody_answers(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    with service.running(config):
        (event_id,) = published(config, 1)
        until(config, "dlq", "list", true=bool)
        until(config, "outbox", "list", "--type", "order.thanked", true=bool)
    drop = ("dlq", "drop", event_id, "--config", str(config))
    refused = cordata(*drop)
    assert refused.returncode == 2 and "add --yes" in refused.stderr
    purge = ("outbox", "purge", "--before", "0s", "--config", str(config))
    assert cordata(*purge).returncode == 2
    assert cordata(*purge, "--yes").stdout == "1 deleted\n"  # order.thanked; the letter holds its
    assert cordata(*drop, "--yes").stdout == "1 dropped\n"
    assert cordata(*drop, "--yes").returncode == 1
    assert cordata(*purge, "--yes").stdout == "1 deleted\n"
    assert told(config, "outbox", "list") == {"items": [], "next": None}


def test_pages_follow_each_other(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    known_groups(config)
    ids = published(config, 3)
    first = told(config, "outbox", "list", "--state", "pending", "--limit", "2")
    assert [one["event_id"] for one in first["items"]] == [ids[2], ids[1]]
    rest = told(config, "outbox", "list", "--limit", "2", "--after", first["next"])
    assert ([one["event_id"] for one in rest["items"]], rest["next"]) == ([ids[0]], None)
    more = cordata("outbox", "list", "--limit", "2", "--config", str(config))
    assert f"--after {first['next']}" in more.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("outbox", "list", "--since", "soon"),
        ("events", "read", "--at", str(2**63)),
        ("events", "read", "--after", str(2**63)),
        ("subscriptions", "dead", "x", "--after", str(2**63)),
        ("events", "append", "s", "T", "--expected", "-1"),
        ("trace", "x" * 100_000),
        ("mail", "list", "--since", "99999999w"),
        ("outbox", "list", "--after", "here"),
        ("outbox", "list", "--limit", "0"),
        ("outbox", "retry"),
        ("outbox", "retry", "id", "--all"),
        ("outbox", "purge", "--yes"),
        ("outbox", "replay"),
        ("outbox", "replay", "--group", "g"),
        ("outbox", "replay", "--all", "--again"),
        ("outbox", "list", "--since", "2026-13-01"),
        ("dlq", "list", "--after", "1.2"),
        ("dlq", "replay"),
        ("dlq", "replay", "--all", "--group", "g"),
        ("dlq", "drop", "id", "--type", "t", "--yes"),
    ],
)
def test_wrong_usage_is_exit_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    config = prepared(tmp_path)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    result = cordata(*arguments, "--config", str(config))
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr


def test_what_is_not_there_is_exit_1(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    assert cordata("dlq", "list", "--config", str(config)).returncode == 1  # no schema yet
    assert cordata("migrate", "--config", str(config)).returncode == 0
    assert cordata("dlq", "list", "--config", str(config)).returncode == 0
    for group, action in (
        *(("outbox", "show"), ("outbox", "retry"), ("dlq", "show"), ("dlq", "replay")),
        *(("alerts", "show"), ("alerts", "clear"), ("mail", "show"), ("mail", "retry")),
    ):
        id_ = "4711" if group == "mail" else "\x1b[31m"
        missing = cordata(group, action, id_, "--config", str(config))
        assert missing.returncode == 1 and "\x1b" not in missing.stderr, missing
        assert missing.stderr.endswith(f"\nhint: see `cordata {group} list`\n"), missing


def test_id_is_acted_on_once_when_it_is_given_twice(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    known_groups(config)
    (event,) = published(config, 1)
    assert told(config, "outbox", "replay", event, event)["count"] == 1
    for command in ("outbox retry", "dlq replay", "dlq drop --yes", "alerts clear"):
        done = cordata(*command.split(), "x", "x", "--json", "--config", str(config))
        assert done.returncode == 1 and json.loads(done.stdout)["missing"] == ["x"], done


def test_store_of_a_foreground_server_is_found_by_its_directory(tmp_path: Path) -> None:
    data, name = tmp_path / "data", "tests.integration.cli.mending:app"
    (data / "run").mkdir(parents=True)
    assert cordata("migrate", "--app", name, "--state-dir", str(data)).returncode == 0
    assert (data / "cordata.db").exists()
    result = cordata("outbox", "list", "--json", "--state-dir", str(data))
    assert json.loads(result.stdout) == {"items": [], "next": None}


def test_migrate_tells_and_does_what_is_pending(state: Path) -> None:
    config = str(prepared(state))
    pending = cordata("migrate", "--check", "--config", config)
    assert (pending.returncode, pending.stdout.split()[:3]) == (
        1,
        ["pending:", "cordata", "0001_runtime"],
    )
    assert cordata("migrate", "--config", config).returncode == 0
    assert cordata("migrate", "--check", "--config", config).stdout == "the schema is current\n"


def test_migrate_refuses_beside_a_running_primary(state: Path) -> None:
    config = prepared(state)
    with managed(config, "primary", **{MENDED: ""}) as primary:
        primary.until_ready()
        result = cordata("migrate", "--config", str(config))
        assert result.returncode == 1
        assert "error: a primary is running" in result.stderr
        assert "hint: it migrates when it starts" in result.stderr
        assert cordata("migrate", "--check", "--config", str(config)).returncode == 0
        assert primary.stop()[0] == 0
