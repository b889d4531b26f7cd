"""Whether a restart succeeded, and which migrations it must not meet."""

from __future__ import annotations

import pytest

from cordata.operate.rolling_restart import find_problem, find_removals

BEFORE = {"ActiveState": "active", "MainPID": "10"}


@pytest.mark.parametrize(
    ("after", "said", "problem"),
    [
        ({"ActiveState": "active", "MainPID": "11"}, "", ""),
        ({"ActiveState": "active", "MainPID": "10"}, "", "has the same process as before"),
        ({"ActiveState": "active", "MainPID": "11"}, "was late", "was late"),
        (
            {
                "ActiveState": "failed",
                "MainPID": "0",
                "Result": "exit-code",
                "ExecMainStatus": "1",
            },
            "the job failed",
            "the job failed; it is failed (exit-code, exit status 1)",
        ),
        ({}, "", "is unknown (?, exit status 0)"),
    ],
)
def test_restart_succeeded_when_a_new_process_is_active(
    after: dict[str, str], said: str, problem: str
) -> None:
    assert find_problem(BEFORE, after, said) == problem


def test_removal_is_a_migration_that_starts_a_thousand() -> None:
    pending = [
        {"component": "shop", "number": number, "name": "x"} for number in (2, 999, 1000, 1001)
    ]
    assert find_removals(pending) == ["shop 1000_x"]
