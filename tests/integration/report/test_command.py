from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from tests.integration.alpinebits.hub import open_hub
from tests.integration.alpinebits_client.peers import Done, command
from tests.integration.hub.command import configure

from alpinehub.report.figures import Figures


async def report(folder: Path, *words: str, day: str = "2024-01-02") -> Done:
    """Run `alpinehub report` of a day, by default one on which one request came; "": of no day."""
    if not (folder / "cordata.toml").exists():
        async with open_hub(folder) as hub:
            await hub.add(1, "a1")
    config = ("--config", str(configure(folder)))
    return await command("report", *config, *(("--date", day) if day else ()), *words)


async def test_command_shows_the_report_in_each_format_and_sends_nothing(tmp_path: Path) -> None:
    text = await report(tmp_path, "--hotel", "H1")
    assert text.code == 0 and "Eingegangen: 1" in text.out
    html = await report(tmp_path, "--hotel", "H1", "--format", "html")
    assert html.out.startswith("<!DOCTYPE html>")
    told = (await report(tmp_path, "--hotel", "H1", "--format", "json")).json
    assert told.keys() == {field.name for field in fields(Figures)}
    assert (told["requests"], told["hotel"]["code"], told["day"]) == (1, "H1", "2024-01-02")
    assert [(one["account"], one["count"]) for one in told["waiting"]] == [("u1", 1)]


async def test_command_shows_all_hotels(tmp_path: Path) -> None:
    assert "Eingegangen: 1" in (await report(tmp_path, "--portfolio")).out
    html = await report(tmp_path, "--portfolio", "--format", "html")
    assert html.out.startswith("<!DOCTYPE html>")
    told = (await report(tmp_path, "--portfolio", "--format", "json")).json
    assert [(one["code"], one["stale"]) for one in told["hotels"]] == [("H1", True)]
    assert (await report(tmp_path, "--portfolio", "--hotel", "H1")).code == 2


async def test_command_fails_when_there_is_no_such_hotel(tmp_path: Path) -> None:
    failed = await report(tmp_path, "--hotel", "H9")
    assert failed.code == 1 and "there is no hotel 'H9'" in failed.err
    assert (await report(tmp_path)).code == 2


async def test_command_shows_today_when_no_day_is_given(tmp_path: Path) -> None:
    for words in (("--hotel", "H1"), ("--portfolio",)):
        today = await report(tmp_path, *words, "--format", "json", day="")
        assert today.code == 0 and today.json["day"] > "2024-01-02"
