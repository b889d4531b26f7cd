"""The load measurement itself: a second of it on a small store, so that it stays able to run.

Its figures are the machine's business, and are not looked at here. test_growth fills both stores.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench import hub_load
from tests.bench.hub_load import Figures, Load, judge
from tests.bench.hub_load_drive import Taken, percentile

SMALL = Load(
    hotels=4, requests=300, waiting=120, polls=20, webhooks=40, seconds=1, warm=1, workers=2
)


def test_load_measures_all_that_it_sends(tmp_path: Path) -> None:
    figures = hub_load.run_on("sqlite:", SMALL, tmp_path)
    taken = figures.taken
    assert not taken.errors
    assert (len(taken.latencies["poll"]), len(taken.latencies["webhook"])) == (20, 40)
    assert taken.fetched and taken.latencies["ack"]
    assert [came for _, came, _ in figures.long] == [120, 120]
    assert len(figures.memory) == 2 and all(min(sizes) > 1 for sizes in figures.memory.values())


def told(*, poll: float, webhook: float, errors: int = 0, last: float = 50.0) -> list[str]:
    """What is wrong with such figures, in seconds and MB."""
    taken = Taken()
    taken.latencies["poll"] = [0.01] * 97 + [poll] * 3
    taken.latencies["webhook"] = [0.01] * 97 + [webhook] * 3
    taken.errors["poll"] = errors
    memory = {7: [50.0, 50.0, 50.0, 50.0, last, last]}
    found = Figures(taken, memory, long=[(0.1, 1000, 2.0)])
    return [line for good, line in judge(found, Load()) if not good]


def test_load_is_content_with_what_is_wanted() -> None:
    assert told(poll=0.1, webhook=0.05) == []


def test_load_names_what_is_too_slow_too_large_or_wrong() -> None:
    assert [line.split(" (")[0] for line in told(poll=0.2, webhook=0.06, errors=2, last=55.0)] == [
        "poll p99 200.0 ms",
        "webhook p99 60.0 ms",
        "errors 2",
        "worker 7: 50.0 MB in the first third, 55.0 MB in the last",
    ]


def test_load_is_not_content_with_nothing() -> None:
    empty = Figures(Taken(), {}, long=[(0.1, 0, 0.0)])
    assert len([line for good, line in judge(empty, Load()) if not good]) == 3


def test_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([], 0.5) == 0.0
