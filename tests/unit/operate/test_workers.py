"""Names of workers, as an operator writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordata.operate.workers import drop_in_text, numbers_of, unit_of
from cordata.systemd.systemctl import SystemdError, write_drop_in


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("worker@2", "worker@2.service"),
        ("workers@2", "worker@2.service"),
        ("worker@12.service", "worker@12.service"),
        ("3", "worker@3.service"),
        ("worker", None),
        ("primary", None),
        ("worker@x", None),
        ("worker@2.socket", None),
    ],
)
def test_worker_is_named_as_its_unit_its_alias_or_its_number(name: str, unit: str | None) -> None:
    assert unit_of(name) == unit


def test_drop_in_wants_as_many_workers_as_asked_for() -> None:
    [line] = [line for line in drop_in_text(3).splitlines() if line.startswith("Wants=")]
    assert numbers_of(line.removeprefix("Wants=").split()) == {0, 1, 2}


def test_root_is_asked_for_only_where_root_may_do_more(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemdError, match="cannot be written") as caught:
        write_drop_in(tmp_path / "file" / "workers.conf", drop_in_text(2))
    assert caught.value.hint is None
