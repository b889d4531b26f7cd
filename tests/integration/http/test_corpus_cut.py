"""The wire corpus in pieces: how the bytes are cut never changes what they mean."""

from __future__ import annotations

from tests.unit.http.corpus import load, replay


async def test_cases_are_judged_the_same_when_bytes_come_one_by_one() -> None:
    cases = load("valid") + load("invalid")
    await replay(cases, lambda data: [[data[i : i + 1] for i in range(len(data))]])


async def test_cases_are_judged_the_same_when_cut_at_any_byte() -> None:
    cases = load("valid") + load("invalid")
    await replay(
        cases,
        lambda data: [
            [data[:cut], data[cut:]] for cut in range(1, len(data), 1 + len(data) // 400)
        ],
    )
