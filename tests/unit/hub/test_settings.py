"""What [alpinehub] refuses at start, and not at eight o'clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpinehub.settings import HubSettings
from cordata.config import build, open_document
from cordata.errors import ConfigError


@pytest.mark.parametrize("key", ["report_to", "portfolio_to"])
@pytest.mark.parametrize("text", ["boss", "Boss <boss@example.com>", "a@x.it, b@x.it", ""])
def test_configuration_names_what_is_no_address(tmp_path: Path, key: str, text: str) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text(f'[alpinehub]\n{key} = ["fine@example.com", "{text}"]\n')
    with pytest.raises(ConfigError) as refused:
        build(open_document(path), {"alpinehub": HubSettings}, {})
    [problem] = refused.value.problems
    assert f"{key}: {text!r} is no e-mail address" in problem


def test_configuration_takes_addresses(tmp_path: Path) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text('[alpinehub]\nreport_to = ["fine@example.com"]\n')
    config = build(open_document(path), {"alpinehub": HubSettings}, {})
    assert config.settings["alpinehub"] == HubSettings(report_to=("fine@example.com",))


@pytest.mark.parametrize(
    "line",
    [
        *("form_burst = 0", "form_per_minute = -1.0", "form_per_minute = 1e-9"),
        *("form_per_hour = -1", "customer_days = 999999999", "inbox_days = -1"),
    ],
)
def test_configuration_names_limits_that_cannot_be(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text(f"[alpinehub]\n{line}\n")
    with pytest.raises(ConfigError) as refused:
        build(open_document(path), {"alpinehub": HubSettings}, {})
    assert line.split(" ")[0] in str(refused.value)
