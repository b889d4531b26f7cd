"""Errors of a command as a person sees them."""

from __future__ import annotations

import os

import click
import pytest

from cordata.errors import CordataError
from cordata.terminal import Group, run_command


@click.group(cls=Group)
def shop() -> None:
    pass


@shop.command()
@click.argument("name")
@click.option("--tag", "tags", multiple=True)
@click.option("--file", type=click.Path())
def find(name: str, tags: tuple[str, ...], file: str | None) -> None:
    if file is not None:
        os.stat(file)
        return
    raise CordataError(f"there is no {name}", hint=f"not even {name}")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: shop, "shop", words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


NOT_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("words", [(NOT_UTF_8,), ("x", "--tag", "y", "--tag", NOT_UTF_8)])
def test_text_that_is_not_utf_8_is_wrong_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("find", *words) == 2
    assert "it is not UTF-8 text" in capsys.readouterr().err


def test_path_that_is_not_utf_8_is_accepted_and_one_that_the_system_refuses_is_no_bug(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("find", "x", "--file", NOT_UTF_8) == 1
    assert "\\udce9: No such file or directory" in capsys.readouterr().err
    assert run("find", "x", "--file", "y" * 5000) == 1
    told = capsys.readouterr().err
    assert "looks like a bug" not in told and "hint: --debug" in told


def test_error_shows_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("find", "\x1b[31mred\nblue") == 1
    assert capsys.readouterr().err == (
        "error: there is no \\x1b[31mred\nblue\nhint: not even \\x1b[31mred\nblue\n"
    )
    assert run("find", "x", "--\x1b[31mred") == 2
    assert "\x1b" not in capsys.readouterr().err


def test_error_that_quotes_a_long_argument_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("find", "x" * 100_000) == 1
    assert run("x" * 100_000) == 2
    assert len(capsys.readouterr().err) < 20_000
