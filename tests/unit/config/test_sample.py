"""packaging/cordata.toml and alpinehub.toml document every key, with its real default."""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from alpinehub.app import app
from cordata.config import Config, Document, build, open_document
from cordata.config.reader import is_section, key_of

PACKAGING = Path(__file__).parents[3] / "packaging"
SAMPLE, HUB = PACKAGING / "cordata.toml", PACKAGING / "alpinehub.toml"
_KEY = re.compile(r"# ([a-z_]+ = .*)\Z")
#: What the files give without any key but the application that the hub's package names.
DEFAULTS = Document(path=None, tables={"app": {"import": "alpinehub.app:app"}})
_EXAMPLE = re.compile(r"# \[[\w.]+\]\Z")


def uncommented(sample: Path = SAMPLE) -> str:
    """A sample with every commented default in force; example sections stay comments."""
    lines, example = [], False
    for line in sample.read_text().splitlines():
        example = bool(_EXAMPLE.match(line)) or (example and bool(line))
        key = _KEY.match(line)
        lines.append(key[1] if key and not example else line)
    return "\n".join(lines)


def keys_of(section: Any) -> set[str]:
    return {key_of(declared.name) for declared in fields(section)}


def installed(tmp_path: Path, runtime: str, hub: str) -> Document:
    """Both files where their packages put them."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "cordata.toml").write_text(runtime)
    (tmp_path / "conf.d/alpinehub.toml").write_text(hub)
    return open_document(tmp_path / "cordata.toml")


def test_samples_are_valid_and_set_the_application_alone_as_they_are_installed(
    tmp_path: Path,
) -> None:
    document = installed(tmp_path, SAMPLE.read_text(), HUB.read_text())
    config = build(document, app.settings_classes, {})
    assert config == build(DEFAULTS, app.settings_classes, {})
    # Without the hub's package no application is named.
    assert build(open_document(SAMPLE), {}, {}) == Config()


def test_samples_hold_every_key_once_with_its_default(tmp_path: Path) -> None:
    # A key given twice is no valid TOML.
    runtime = uncommented().replace('import = ""\n', "")
    document = installed(tmp_path, runtime, uncommented(HUB))
    assert build(document, app.settings_classes, {}) == build(DEFAULTS, app.settings_classes, {})
    hub = tomllib.loads(uncommented(HUB))
    assert set(hub) == {"app", *app.settings_classes}
    tables = {**hub, **tomllib.loads(uncommented())}
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


@pytest.mark.parametrize("sample", [SAMPLE, HUB], ids=["cordata", "alpinehub"])
def test_sample_says_something_above_every_key(sample: Path) -> None:
    lines = sample.read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if _KEY.match(line) and not _EXAMPLE.match(above):
            assert above.startswith("# ") and not _KEY.match(above), line
    assert max(map(len, lines)) <= 100
