"""Long work at a terminal: a bar while it runs, and a clear end at Ctrl-C."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.cli.mending import app
from tests.integration.cli.terminal import Terminal

from cordata import Tx, connect
from cordata.broker.inspection import remove_group

COUNT = 20_000


#: The configuration of a store that was filled once; nobody writes into it.
_made: list[Path] = []


@pytest.fixture
def filled(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a store with so many delayed events of one group."""
    if not _made:
        _made.append(fill(tmp_path_factory.mktemp("made")))
    shutil.copytree(_made[0].parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / _made[0].name


def fill(directory: Path) -> Path:
    """Make such a store."""
    config = write_config(directory, app="tests.integration.cli.mending:app")
    assert cordata("migrate", "--config", str(config)).returncode == 0

    async def unit(tx: Tx) -> None:
        for _ in range(COUNT // 10):
            await tx.publish("order.made", {}, delay_s=3600.0)

    async def publish() -> None:
        async with connect(app, config) as ctx:
            await remove_group(ctx.store, "shop.thank")
            for _ in range(10):
                await ctx.run(unit)

    asyncio.run(publish())
    return config


def test_bar_is_shown_and_ctrl_c_ends_between_two_units(filled: Path) -> None:
    command = ("outbox", "retry", "--all", "--config", str(filled))
    terminal = Terminal(*command)
    terminal.until(r" \d+ %  [\d,]+ due now")
    terminal.process.send_signal(signal.SIGINT)
    code, out = terminal.ended()
    assert code == 130, terminal.shown
    done = int(out.removesuffix(" due now\n").replace(",", ""))
    assert 0 < done < COUNT and done % 200 == 0
    assert "stopped by Ctrl-C: these are done, the rest is unchanged" in terminal.shown
    assert "Traceback" not in terminal.shown
    # Each unit is whole, and the same command does the rest; no bar where there is no terminal.
    rest = cordata(*command)
    assert (rest.returncode, rest.stderr) == (0, "")


def test_removal_of_a_group_goes_on_when_it_was_stopped(filled: Path) -> None:
    command = ("group", "remove", "shop.pack", "--yes", "--config", str(filled))
    terminal = Terminal(*command)
    terminal.until(r" \d+ %  [\d,]+ messages deleted")
    terminal.process.send_signal(signal.SIGINT)
    code, out = terminal.ended()
    assert code == 130 and "the same command continues" in terminal.shown, terminal.shown
    # The group is gone, its messages are not: without --yes they are not deleted either.
    unasked = cordata(*(word for word in command if word != "--yes"))
    assert unasked.returncode == 2 and "messages of shop.pack permanently?" in unasked.stderr
    rest = cordata(*command)
    assert rest.returncode == 0, rest
    first, then = (int(one.split()[0].replace(",", "")) for one in (out, rest.stdout))
    assert 0 < first < COUNT and first + then == COUNT
    assert cordata(*command).returncode == 1


#: Each event is a dead letter to its group, or done although it did nothing.
_DEAD = "UPDATE message SET state = 'dead', history = '[]', dead_at = position"
_DONE = "DELETE FROM message"


@pytest.mark.parametrize(
    ("command", "dead", "what"),
    [
        ("outbox replay --all --yes", False, "checked"),
        ("outbox purge --before 0s --yes", False, "deleted"),
        ("dlq replay --all", True, "returned to their groups"),
        ("dlq drop --all --yes", True, "dropped"),
    ],
)
def test_bar_grows_until_all_is_done(filled: Path, command: str, dead: bool, what: str) -> None:
    with closing(sqlite3.connect(filled.parent / "state" / "cordata.db")) as database:
        database.execute(_DEAD if dead else _DONE)
        database.commit()
    terminal = Terminal(*command.split(), "--config", str(filled))
    assert_grows(terminal, what)


def test_bar_grows_while_a_file_is_appended(tmp_path: Path) -> None:
    config = write_config(tmp_path, app="tests.integration.cli.mending:app")
    assert cordata("migrate", "--config", str(config)).returncode == 0
    lines = tmp_path / "lines"
    lines.write_text('{"type": "x"}\n' * 4 * COUNT)  # fewer may be done before the bar is drawn
    append = ("events", "append", "account-1", "--lines", "--config", str(config))
    assert_grows(Terminal(*append, given=lines), "appended", 4 * COUNT)


def assert_grows(terminal: Terminal, what: str, count: int = COUNT) -> None:
    """It ends well, told how many there were, and was shown on the way."""
    code, out = terminal.ended()
    assert code == 0 and out.startswith(f"{count:,} "), (out, terminal.shown)
    shown = [int(share) for share in re.findall(rf" (\d+) %  [\d,]+ {what}", terminal.shown)]
    assert shown and shown[0] < 100, "not before all was done"
    assert shown == sorted(shown)
