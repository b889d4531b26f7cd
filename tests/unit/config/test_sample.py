"""packaging/cordata.toml documents every key, with its real default."""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from alpinehub.app import app
from cordata.config import Config, Document, build, open_document
from cordata.config.reader import is_section, key_of

SAMPLE = Path(__file__).parents[3] / "packaging/cordata.toml"
_KEY = re.compile(r"# ([a-z_]+ = .*)\Z")
#: What a file without any key gives, with the application that the package runs.
DEFAULTS = Document(path=None, tables={"app": {"import": "alpinehub.app:app"}})
_EXAMPLE = re.compile(r"# \[[\w.]+\]\Z")


def uncommented() -> str:
    """The sample with every commented default in force; example sections stay comments."""
    lines, example = [], False
    for line in SAMPLE.read_text().splitlines():
        example = bool(_EXAMPLE.match(line)) or (example and bool(line))
        key = _KEY.match(line)
        lines.append(key[1] if key and not example else line)
    return "\n".join(lines)


def keys_of(section: Any) -> set[str]:
    return {key_of(declared.name) for declared in fields(section)}


def test_sample_is_valid_and_names_the_hub_alone_as_it_is_installed() -> None:
    config = build(open_document(SAMPLE), app.settings_classes, {})
    assert config == build(DEFAULTS, app.settings_classes, {})


def test_sample_holds_every_key_once_with_its_default(tmp_path: Path) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text(uncommented())  # a key given twice is no valid TOML
    assert build(open_document(path), app.settings_classes, {}) == build(
        DEFAULTS, app.settings_classes, {}
    )
    tables = tomllib.loads(uncommented())
    schema = {
        declared.name: keys_of(getattr(Config(), declared.name))
        for declared in fields(Config)
        if is_section(type(getattr(Config(), declared.name)))
    }
    schema.update({name: keys_of(kind) for name, kind in app.settings_classes.items()})
    assert {name: set(table) for name, table in tables.items()} == schema


def test_sample_examples_are_valid_when_uncommented(tmp_path: Path) -> None:
    path = tmp_path / "cordata.toml"
    text = SAMPLE.read_text().replace("# [worker.3]\n# services", "[worker.3]\nservices")
    head, mark, example = text.partition("# [pool.report]")
    example = (mark + example).replace("# [", "[", 1).replace("# workers", "workers", 1)
    path.write_text(head + example.replace("# commands", "commands", 1))
    config = build(open_document(path), app.settings_classes, {})
    assert config.pools["report"].commands == ("render_*",)
    assert config.worker_of("3").services == ("engine",)


def test_sample_says_something_above_every_key() -> None:
    lines = SAMPLE.read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if _KEY.match(line) and not _EXAMPLE.match(above):
            assert above.startswith("# ") and not _KEY.match(above), line
    assert max(map(len, lines)) <= 100
