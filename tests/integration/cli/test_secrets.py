"""Whatever is wrong with an address: no command tells a part of what may be its password."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.cli.command import cordata, python, write_config
from tests.integration.server.running import forked_server

#: Where it begins and ends is what such a url leaves open.
PASSWORDS = ("hunter", "two2")
STORES = [
    "postgresql://u:hunter%ZZtwo2@h/db",
    "postgresql://u:hunter/two2@h/db",
    "postgresql://u:hunter@two2@h/db",
    "postgresql://u:hunter two2@h/db",
    "postgresql://u:hunter#two2@h:5432/db",
    "postgresql://u:hunter?two2@h/db",
    "postgresql://u:1/hunter:two2@h/db",
    "postgresql://u:hunter[two2@h/db",
    "postgresql://u@[hunter:two2/db",
    "postgresql://u@h:hunter/two2",
    "postgresql://u@h/db?huntertwo2=1",
    "postgresql://u@h/db?huntertwo2",
    "postgresql://u@h/db?password=huntertwo2",
    "postgresql://u@h/db?pass=hunter=two2",
    "postgresql://u@h/db?sslmode=%hunter&x=two2",
    "postgresql://u:hunter\x00two2@h/db",
    "postgresql:u:hunter@two2",
    "postgresql//u:huntertwo2@h/db",
    "Postgresql://u:huntertwo2@h/db",
    "hunter:two2@h",
    "hunter two2",
    "host=h password=huntertwo2 dbname=x",
    "mysql://u:huntertwo2@h/db",
    "sqlite://u:huntertwo2@h/db",
    "sqlite:hunter:two2",
]
BROKERS = [
    "redis://:huntertwo2@h/0",
    "redis://u:hunter%ZZtwo2@h/0",
    "redis://u:hunter/two2@h/0",
    "redis://u:hunter@two2@h/0",
    "redis://u:hunter two2@h/0",
    "redis://u:hunter#two2@h/0",
    "redis://u:hunter?two2@h/0",
    "redis://u:hunter[two2@h/0",
    "redis://u:hunter]two2@h/0",
    "redis://u:hunter\u2100two2@h/0",
    "redis://u:hunter\u0000two2@h/0",
    "redis://h:hunter/two2",
    "redis://h:99999999hunter/0?two2",
    "redis://h/hunter?two2",
    "redis://h/\u00b2?huntertwo2",
    "redis://h/0?huntertwo2=1",
    "redis://h/0?password=huntertwo2",
    "redis+sentinel://u:huntertwo2@a:1,b:2/main/0",
    "redis+sentinel://a:1,u:hunter@two2:2/main/0",
    "redis+sentinel://a:hunter,b:two2/main",
    "redis+sentinel://a:1,b:2/0?hunter=two2",
    "redis:hunter:two2",
    "redis//:huntertwo2@h",
    "hunter:two2@h:6379/0",
    "amqp://u:huntertwo2@h/0",
]
URLS = [("store", "url", url) for url in STORES] + [("broker", "url", url) for url in BROKERS]
SESSIONS = [("store", "session_url", url) for url in STORES if "sqlite" not in url]
#: All that read a configuration do so in one way: each address is given to the first two, and one
#: of five to the others.
COMMANDS = [
    ("config", "show"),
    ("config", "check"),
    ("config", "check", "--debug"),
    ("outbox", "list"),
    ("outbox", "replay", "--all", "--yes"),
    ("dlq", "list"),
    ("events", "read", "all"),
    ("subscriptions", "list"),
    ("migrate",),
    ("job", "count"),
]
DRIVER = """
import contextlib, io, json, logging, sys
from cordata.cli import main
class Said(io.StringIO):
    def fileno(self):
        return 2

results = []
for call in json.load(sys.stdin):
    said = Said()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(call)
        except SystemExit as end:
            results.append([end.code, said.getvalue()])
    logging.getLogger().handlers.clear()
json.dump(results, sys.__stdout__)
"""


def configured(directory: Path, section: str, key: str, url: str) -> Path:
    text = f"[{section}]\n{key} = {json.dumps(url)}\n"
    if key == "session_url":
        text += 'url = "postgresql://u@h/db"\n'
    return write_config(directory, text)


class Call(NamedTuple):
    code: int
    said: str


def run_all(calls: list[list[str]]) -> list[Call]:
    """Commands one after the other, in one process: each for itself would take half a second."""
    done = python("-c", DRIVER, given=json.dumps(calls))
    assert done.returncode == 0, done.stderr
    return [Call(*result) for result in json.loads(done.stdout)]


def clean(text: str) -> bool:
    return not any(part in text for part in PASSWORDS)


@pytest.mark.parametrize(
    ("section", "key"), [("store", "url"), ("store", "session_url"), ("broker", "url")]
)
def test_no_command_quotes_an_address(tmp_path: Path, section: str, key: str) -> None:
    urls = [url for one, other, url in URLS + SESSIONS if (one, other) == (section, key)]
    cases = []
    for number, url in enumerate(urls):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = configured(directory, section, key, url)
        commands = COMMANDS if number % 5 == 0 else COMMANDS[:2]
        cases += [(url, [*command, "--config", str(path)]) for command in commands]
    results = run_all([call for _, call in cases])
    wrong = [
        (url, call[:-2], result)
        for (url, call), result in zip(cases, results, strict=True)
        if not clean(result.said)
        or "looks like a bug" in result.said
        # A file that has a NUL cannot be read at all.
        or result.code != (0 if call[:2] == ["config", "show"] and "\0" not in url else 78)
        or (f"{key} = " not in result.said and f"[{section}] {key}" not in result.said)
    ]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize(
    "text",
    [
        '[store]\npool_size = "postgresql://u:huntertwo2@h/db"\n',
        'store = "postgresql://u:huntertwo2@h/db"\n',
        '[store]\nurl = ["postgresql://u:huntertwo2@h/db"]\n',
        '[store]\nurl = "postgresql://u:huntertwo2@h/db\n',
        '[store]\nurl = {x = "huntertwo2"}\n',
        '[worker]\nservices = ["postgresql://u:huntertwo2@h/db"]\n',
    ],
)
def test_config_check_quotes_no_address_that_stands_elsewhere(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text(text)
    [(code, said)] = run_all([["config", "check", "--config", str(path)]])
    assert code == 78 and clean(said), said


@pytest.mark.parametrize(
    ("section", "url"), [("store", STORES[0]), ("store", STORES[10]), ("broker", BROKERS[2])]
)
def test_server_ends_without_quoting_an_address(tmp_path: Path, section: str, url: str) -> None:
    path = configured(tmp_path, section, "url", url)
    with forked_server(None, "--config", str(path), app=None, workers=1) as running:
        assert running.wait() == 78
        assert f"[{section}] url" in running.log
        assert clean(running.log)


def test_debug_tells_no_address_of_a_command_either(tmp_path: Path) -> None:
    path = configured(tmp_path, "broker", "url", "redis://h:hunter/two2")
    done = cordata("dlq", "list", "--debug", "--config", str(path))
    assert done.returncode in (2, 78) and clean(done.stderr)
