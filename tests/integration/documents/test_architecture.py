"""What the architecture page names is there."""

from __future__ import annotations

import importlib
import re

import pytest
from tests.host.documents import CHECKOUT, text_of

PAGE = text_of("architecture.md")
NAMED = sorted(set(re.findall(r"`((?:cordata|alpinehub)/[\w/]+)\.py:([\w.]+)`", PAGE)))
PLACES = sorted(set(re.findall(r"`((?:cordata|alpinehub|tests|units)/[^`:\s]*)`", PAGE)))


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_function_is_there(module: str, name: str) -> None:
    found: object = importlib.import_module(module.replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize("place", PLACES)
def test_file_is_there(place: str) -> None:
    root = CHECKOUT if place.startswith(("tests/", "units/")) else CHECKOUT / "daemon"
    assert (root / place).exists()
