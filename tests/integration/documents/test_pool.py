"""What the documentation tells of commands and their pool, typed and read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.host.documents import CHECKOUT, blocks, text_of
from tests.integration.documents.test_first_steps import (
    TIMEOUT_S,
    as_python,
    ready,
    run_shell,
    write_application,
)
from tests.servers.process import free_port

import cordata
from cordata.config import Document, build
from cordata.config.pool import PoolConfig
from cordata.pool.route import _STATUS
from cordata.testing import open_app


def typed() -> tuple[str, list[str]]:
    """How the application is started, and what is typed beside it."""
    (text,) = [text for text in blocks("console") if "vouchers:app" in text]
    start, *beside = (line.removeprefix("$ ") for line in text.splitlines())
    return start, beside


def settings() -> tuple[str, str]:
    """Name and text of the configuration."""
    (text,) = [text for text in blocks("toml") if "[pool.slow]" in text]
    name = re.match(r"# ([a-z_]+\.toml)\n", text)
    assert name is not None
    return name[1], text


def write(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_application(directory)
    monkeypatch.syspath_prepend(str(directory))
    for name in ("vouchers", "voucher"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_commands_of_the_documents_run_when_typed(tmp_path: Path) -> None:
    """As they stand there: only the port is another one, and `cordata` that of the checkout."""
    write_application(tmp_path)
    name, text = settings()
    (tmp_path / name).write_text(text)
    start, beside = typed()
    port = str(free_port())
    path = os.pathsep.join([str(CHECKOUT / "daemon"), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("CORDATA_CONFIG", None)
    told: dict[str, str] = {}
    with ready(
        as_python(start.replace("8000", port)), tmp_path / "log", cwd=tmp_path, PYTHONPATH=path
    ):
        for line in beside:
            if line.startswith("curl "):
                told["curl"] = run_shell(line.replace("8000", port))
                continue
            python = line.startswith("python ")
            done = subprocess.run(
                [sys.executable, *line.split()[1:]] if python else as_python(line),
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            assert done.returncode == 0, (line, done)
            told[line.partition(" --state-dir")[0]] = done.stdout
    assert json.loads(told["curl"]) == "Room 7 in Sans"
    assert told["python call_vouchers.py"] == (
        "Room 7 in Sans\n{'row': 0}\n{'row': 1}\n['boots', 'skis'] {'packed': 2}\n"
        "{'guest': 'Eva'} {'season': 'winter'}\n"
        "cordata.errors.PermanentError a voucher needs a room"
        " cordata.errors.PermanentError: a voucher needs a room\n"
    )
    [render, rows] = [text for line, text in told.items() if line.startswith("cordata call")]
    assert (render, rows) == ('"Room 7 in Sans"\n', '{"row":0}\n{"row":1}\n')
    status = told["cordata pool status"]
    assert re.search(r"^3 +slow +ready", status, re.MULTILINE)
    assert len(re.findall(r"^\d +default +ready", status, re.MULTILINE)) == 3


async def test_handler_of_the_documents_mails_what_the_pool_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, monkeypatch)
    from vouchers import app  # type: ignore[import-not-found]

    async with open_app(app) as harness:
        harness.pool_crashes("render")
        await harness.publish("booking.made", {"room": "7"})
        await harness.publish("booking.made", {})
        await harness.drain(raising=False)
        [mail] = await harness.mails()
        assert (mail.subject, mail.text) == ("Voucher", "Room 7 in Sans")
        [letter] = await harness.dead_letters()
        assert letter.attempts == 1  # a PermanentError of the command is one of the handler
    told = r"with CommandRefused at .* < vouchers.py:\d+ .*; in the pool (\S+) at voucher.py:"
    assert re.findall(told, caplog.text) == ["cordata.errors.PermanentError"]
    assert "needs a room" not in caplog.text


def test_errors_of_the_documents_are_those_that_a_caller_meets() -> None:
    text = text_of("develop/pool.md")
    table = text[text.index("| raised | when |") :]
    table = table[: table.index("\n\n")]
    named = {name for name in re.findall(r"`([A-Z]\w+)`", table) if name != "PermanentError"}
    raised = {name for name in dir(cordata.errors) if _is_pools(getattr(cordata.errors, name))}
    assert named == raised - {"PoolError", "PoolTransient", "PoolPermanent"}


def _is_pools(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, cordata.PoolError)


def test_figures_of_the_documents_are_those_of_the_code() -> None:
    text, pool = " ".join(text_of("develop/pool.md").split()), PoolConfig()
    assert "has been run again, up to 3 times (`retries`)" in text and pool.retries == 3
    assert "`max_waiting` calls of this process wait, 10,000 by default" in text
    assert pool.max_waiting == 10_000
    assert "killed 3 processes in a row, and is refused for 60 s" in text
    assert (pool.poison_limit, pool.poison_pause_s) == (3, 60.0)
    assert "of more than 16 MiB" in text and pool.max_frame_bytes == 16 << 20
    for name in ("max_calls", "max_age_s", "max_rss_bytes"):
        assert f"`{name}`" in text and hasattr(pool, name)


def test_statuses_of_the_documents_are_those_of_the_route() -> None:
    text = text_of("develop/pool.md")
    text = text[text.index("JSON in, JSON out") :].partition("\n\n")[0]
    named = {int(found) for found in re.findall(r"\b[45]\d\d\b", text)}
    assert named == {status for _, status in _STATUS} | {500}


def test_settings_of_the_documents_are_taken() -> None:
    config = build(Document(path=None, tables=tomllib.loads(settings()[1])), {}, {})
    assert config.pools["slow"].commands == ("rows", "export.*")
    assert config.pool.http == ("render",)
