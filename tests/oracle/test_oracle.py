"""The hub gives the recorded answers, on both stores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.engine.stores import url_of
from tests.oracle.player import play
from tests.oracle.record import digests, recorded
from tests.oracle.script import CHAPTERS

#: Chapters that are played; ORACLE=all plays each one.
PLAYED = range(CHAPTERS) if os.environ.get("ORACLE") == "all" else range(0, CHAPTERS, 10)


@pytest.mark.parametrize("number", PLAYED)
async def test_chapter_has_the_recorded_answers(state: Path, number: int) -> None:
    records = await play(number, state, url=url_of(state))
    differing = [
        text
        for text, found, wanted in zip(records, digests(records), recorded(number), strict=True)
        if found != wanted
    ]
    text = "\n\n".join(differing[:3])
    assert not differing, f"{len(differing)} answers are others; the first ones:\n{text}"
