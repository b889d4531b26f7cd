"""Calls of many clients while children, workers and clients are killed -9 at random."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.pool.chaos.chaos import chaos
from tests.integration.pool.chaos.served import served

#: Another one: CHAOS_SEED=7 python -m pytest tests/integration/pool/test_chaos.py
SEED = int(os.environ.get("CHAOS_SEED", "3"))


def test_calls_end_well_or_in_a_typed_error_when_processes_are_killed(tmp_path: Path) -> None:
    told = chaos(tmp_path, seed=SEED, calls=2000, calls_per_kill=50, workers=3, seconds=25.0)
    print(told)


def test_server_starts_again_what_was_killed_and_its_callers_are_served(tmp_path: Path) -> None:
    told = chaos(
        tmp_path,
        seed=SEED,
        calls=1500,
        calls_per_kill=100,
        workers=2,
        seconds=20.0,
        place=served,
    )
    print(told)


def test_calls_of_a_client_that_is_alone_end_as_well_when_processes_are_killed(
    tmp_path: Path,
) -> None:
    told = chaos(
        tmp_path,
        seed=SEED,
        calls=4000,
        calls_per_kill=150,
        workers=3,
        seconds=25.0,
        alone=True,
    )
    print(told)
