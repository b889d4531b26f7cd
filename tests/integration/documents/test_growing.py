"""The configuration that "Growing" shows, and the numbers that it counts with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.host.documents import CHECKOUT, blocks, text_of

from cordata.config.sections import StoreConfig


def test_configuration_of_many_hosts_passes_the_check(tmp_path: Path) -> None:
    (text,) = [block for block in blocks("toml") if "pgbouncer" in block]
    config = tmp_path / "cordata.toml"
    config.write_text(f'{text}\n[app]\nimport = "alpinehub.app:app"\n')
    done = subprocess.run(
        [sys.executable, "-m", "cordata", "config", "check", "--config", str(config)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "daemon")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_keys_that_it_names_exist_and_its_sum_is_right() -> None:
    text = text_of("scale/growing.md")
    sample = (CHECKOUT / "packaging/cordata.toml").read_text()
    for name in ("process_lease_s", "retention_s", "prefix", "prepared_statements"):
        assert f"{name}" in text and re.search(rf"^# {name} = ", sample, re.MULTILINE)
    hosts, processes, size, more, total = map(
        int, re.findall(r"(\d+) x (\d+) x \((\d+) \+ (\d+)\) = (\d+)", text)[0]
    )
    assert hosts * processes * (size + more) == total < 100
    assert size < StoreConfig().pool_size
