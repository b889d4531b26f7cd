"""What a unit is told when the disk stalls or fails under its COMMIT."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.store.parts import child, deposit, notes_on_disk, opened, slow_sync


async def told_by(mode: str, folder: Path, note: str) -> str:
    """The first line of a child that writes where something was written before."""
    async with opened(folder) as store:
        await deposit(store, "before")
    async with child(mode, folder, note, **slow_sync(folder)) as one:
        told = await one.line()
        await one.kill()
        return told


async def test_unit_is_told_the_truth_when_its_commit_outlasts_the_write_timeout(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        await deposit(store, "before")
    async with child("stall", tmp_path, **slow_sync(tmp_path)) as one:
        behind = await one.line()
        assert behind.startswith("behind it: Busy: ") and "commit" in behind
        assert await one.line() == "committing: False"
        assert await one.line() == "committed: None"
    assert notes_on_disk(tmp_path) == ["a-committing", "before"]


@pytest.mark.parametrize("kind", ["unit", "transaction"])
async def test_caller_is_told_that_nobody_knows_when_the_sync_of_a_commit_fails(
    tmp_path: Path, kind: str
) -> None:
    told = await told_by("fail", tmp_path, kind)
    # It is in the log, though not synced: without a loss of power the next start finds it.
    assert notes_on_disk(tmp_path) == sorted([kind, f"{kind}-before", "before"])
    assert told.startswith("Unclear: ") and "not known" in told


async def test_caller_is_told_that_nothing_was_written_when_a_statement_fails_before_the_commit(
    tmp_path: Path,
) -> None:
    told = await told_by("spill", tmp_path, "n")
    assert notes_on_disk(tmp_path) == ["before"]
    assert told.startswith("StoreUnavailable: ") and "entry.add" in told


async def test_callers_are_told_that_nobody_knows_when_a_shared_commit_fails_and_none_can_begin(
    tmp_path: Path,
) -> None:
    told = await told_by("lose", tmp_path, "n")
    (tmp_path / "elsewhere").rename(tmp_path / "cordata.db")
    assert notes_on_disk(tmp_path) == ["before", "before-too", "n0", "n1"]
    assert told == "Unclear Unclear"
