"""The verdict of `make soak`: it has to see what it is there for."""

from __future__ import annotations

from tests.bench.pool_soak import PARTS, Sample, judge_samples

SECONDS = 300


def samples(part: str, *, mb_per_min: float = 0.0, files_per_min: float = 0.0) -> list[Sample]:
    """Every five seconds, of parts that stay as they are but for one; none is quite calm."""
    found = []
    for n, at_s in enumerate(range(0, SECONDS, 5)):
        mb = {one: 20.0 + n % 3 / 4 for one in PARTS}
        files = {one: 25 + n % 2 * 4 for one in PARTS}
        mb[part] += mb_per_min * at_s / 60
        files[part] += int(files_per_min * at_s / 60)
        found.append(Sample(float(at_s), mb, files, 4, n))
    return found


def wrong(found: list[Sample]) -> list[str]:
    return [line for good, line in judge_samples(found, SECONDS) if not good]


def test_soak_is_content_when_everything_stays_as_it_is() -> None:
    assert not wrong(samples("client"))


def test_soak_names_the_part_that_grows() -> None:
    for part in PARTS:
        assert not wrong(samples(part, mb_per_min=0.5))
        (line,) = wrong(samples(part, mb_per_min=1.5))
        assert line.startswith(f"{part}: +1.5")


def test_soak_names_the_part_that_leaves_files_open() -> None:
    for part in PARTS:
        (line,) = wrong(samples(part, files_per_min=12.0))
        assert line.startswith(f"{part}: open files")


def test_soak_forgives_what_fills_at_the_beginning() -> None:
    found = samples("client")
    for one in found[: len(found) // 3]:
        one.mb["client"] -= 10.0
    assert not wrong(found)
