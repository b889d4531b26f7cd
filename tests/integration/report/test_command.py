from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result
from tests.integration.alpinebits.hub import open_hub

from alpinehub.cli import alpinehub
from cordata import CordataError


def report(folder: Path, *arguments: str) -> Result:
    config = folder / "cordata.toml"
    config.write_text(f'[paths]\nstate = "{folder}"\nruntime = "{folder}"\n')
    command = ["report", "--config", str(config), "--date", "2024-01-02", *arguments]
    return CliRunner().invoke(alpinehub, command)


async def fill(folder: Path) -> None:
    async with open_hub(folder) as hub:
        await hub.add(1, "a1")


def test_command_shows_the_report_in_each_format_and_sends_nothing(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    text = report(tmp_path, "--hotel", "H1")
    assert text.exit_code == 0
    assert "Eingegangen: 1" in text.stdout
    assert report(tmp_path, "--hotel", "H1", "--format", "html").stdout.startswith(
        "<!DOCTYPE html>"
    )
    told = json.loads(report(tmp_path, "--hotel", "H1", "--format", "json").stdout)
    assert (told["requests"], told["hotel"]["code"], told["day"]) == (1, "H1", "2024-01-02")
    assert [(one["account"], one["count"]) for one in told["waiting"]] == [("u1", 1)]


def test_command_shows_all_hotels(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    assert "Eingegangen: 1" in report(tmp_path, "--portfolio").stdout
    assert report(tmp_path, "--portfolio", "--format", "html").stdout.startswith("<!DOCTYPE html>")
    told = json.loads(report(tmp_path, "--portfolio", "--format", "json").stdout)
    assert [(one["code"], one["stale"]) for one in told["hotels"]] == [("H1", True)]
    assert report(tmp_path, "--portfolio", "--hotel", "H1").exit_code == 2


def test_command_fails_when_there_is_no_such_hotel(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    failed = report(tmp_path, "--hotel", "H9")
    assert isinstance(failed.exception, CordataError)
    assert report(tmp_path).exit_code == 2
