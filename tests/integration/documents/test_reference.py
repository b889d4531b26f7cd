"""The reference pages of commands and settings are those of the commands and settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.documents import CHECKOUT, text_of


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reference")
    command = [sys.executable, "packaging/man/pages.py", "--docs", str(directory)]
    subprocess.run(command, cwd=CHECKOUT, env={"PYTHONPATH": "daemon"}, check=True)
    return directory


@pytest.mark.parametrize("page", ["commands.md", "configuration.md"])
def test_reference_page_is_what_make_reference_writes(written: Path, page: str) -> None:
    current = text_of(f"reference/{page}") == (written / page).read_text()
    assert current, f"docs/reference/{page} is out of date: run `make reference`"


def test_configuration_page_names_a_setting_with_its_default() -> None:
    assert "| `max_connections` | `1000` | Connections of one worker" in text_of(
        "reference/configuration.md"
    )


def test_commands_page_names_a_nested_command_and_its_option() -> None:
    _, found, text = text_of("reference/commands.md").partition("\n### cordata dlq replay\n")
    assert found
    assert "| `--json` |" in text.partition("\n### ")[0]
