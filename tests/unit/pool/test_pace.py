"""How long a command is expected to run, by how long it ran."""

from __future__ import annotations

from cordata.core.pool.pace import LONG_US, NEVER, Pace


def paced(*runs: int) -> Pace:
    pace = Pace()
    for us in runs:
        pace.ran("echo", us)
    return pace


def test_nothing_is_expected_of_a_command_that_never_ran() -> None:
    assert paced(0).expected_us("echo") == NEVER
    assert paced(20).expected_us("price") == NEVER
    assert paced(20).expected_us("echo") == 20


def test_process_that_had_to_wait_now_and_then_makes_no_command_long() -> None:
    pace = paced(*[20] * 100)
    for _ in range(20):
        pace.ran("echo", 4000)
        for _ in range(25):
            pace.ran("echo", 20)
        assert pace.expected_us("echo") < 40


def test_command_that_has_become_slow_is_known_at_once_and_forgiven_soon() -> None:
    pace = paced(*[20] * 100, 10_000)
    assert pace.expected_us("echo") > LONG_US
    for _ in range(40):
        pace.ran("echo", 10_000)
    assert pace.expected_us("echo") > 9000
    for _ in range(30):
        pace.ran("echo", 20)
    assert pace.expected_us("echo") < LONG_US


def test_command_that_is_often_long_is_expected_to_be() -> None:
    pace = paced(*[20, 20, 20, 300] * 100)
    assert pace.expected_us("echo") > 80
