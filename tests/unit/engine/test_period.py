from __future__ import annotations

from datetime import date

import pytest

from cordata.services.job import days_owed

TODAY = date(2026, 3, 1)


@pytest.mark.parametrize(
    ("known", "owed"),
    [
        ([], ["2026-03-01"]),
        ([("2026-03-01", True)], []),
        ([("2026-03-01", False)], ["2026-03-01"]),
        ([("2026-02-26", True)], ["2026-02-27", "2026-02-28", "2026-03-01"]),
        ([("2026-02-20", False), ("2026-02-28", True)], ["2026-02-20", "2026-03-01"]),
        ([("2026-01-01", True), ("2026-02-28", True)], ["2026-03-01"]),
        ([("2026-03-02", True), ("2026-03-05", False)], ["2026-03-01"]),
        ([("by hand", False), ("2026-02-30", True)], ["2026-03-01"]),
    ],
)
def test_days_owed_are_the_missed_and_the_failed(
    known: list[tuple[str, bool]], owed: list[str]
) -> None:
    assert days_owed(known, TODAY) == owed
