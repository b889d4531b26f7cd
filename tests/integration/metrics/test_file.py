"""The file of counters: what another process reads, what survives, and what is removed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.store.parts import fill, needs_root, small_disk
from tests.servers.reaper import watched

from cordata.metrics.file import (
    KEPT_S,
    FileInUse,
    MetricsFile,
    Reading,
    Series,
    read,
    read_all,
    remove_old,
)
from cordata.metrics.process import open_metrics
from cordata.metrics.series import WAITING_UNITS

REQUESTS = Series("requests", "counter", (("code", "2xx"),))
DEPTH = Series("depth", "gauge")
SECONDS = Series("seconds", "histogram", (), (0.1, 1.0))
ALL = [REQUESTS, DEPTH, SECONDS]
#: Another process counts, and ends without a word.
COUNTING = """
import os, sys
from pathlib import Path
from tests.integration.metrics.test_file import ALL, REQUESTS
from cordata.metrics.file import MetricsFile
file = MetricsFile(Path(sys.argv[1]), "worker@0", ALL)
for _ in range(int(sys.argv[2])):
    file.values[file.offset(REQUESTS)] += 1.0
if sys.argv[3] == "stay":
    print("counted", flush=True)
    sys.stdin.read()
os._exit(9)
"""

#: Two processes of one unit start at once, again and again.
STARTING = """
import os, sys
from contextlib import suppress
from pathlib import Path
from tests.integration.metrics.test_file import ALL
from cordata.metrics.file import FileInUse, MetricsFile
for child in range(2):
    if os.fork() == 0:
        for _ in range(300):
            with suppress(FileInUse):
                MetricsFile(Path(sys.argv[1]), "job-report", ALL).end()
                (Path(sys.argv[1]) / "job-report.metrics").unlink(missing_ok=True)
        os._exit(0)
for child in range(2):
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


def counting(directory: Path, count: int, then: str) -> subprocess.Popen[str]:
    return watched(
        subprocess.Popen(
            [sys.executable, "-c", COUNTING, str(directory), str(count), then],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )


def only(directory: Path) -> Reading:
    (reading,) = read_all(directory)
    return reading


def test_reading_has_what_was_counted(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path, "primary", ALL)
    file.values[file.offset(REQUESTS)] += 1.0
    file.values[file.offset(REQUESTS)] += 2.0
    file.values[file.offset(DEPTH)] = 7.5
    histogram = file.histogram(SECONDS)
    for seconds in (0.1, 0.2, 5.0):
        histogram.observe(seconds)
    found = only(tmp_path)
    assert found.unit == "primary" and found.pid == os.getpid() and found.alive
    assert abs(found.started_at - time.time()) < 86_400
    assert found.values[REQUESTS] == (3.0,) and found.values[DEPTH] == (7.5,)
    *counts, total = found.values[SECONDS]
    assert counts == [1.0, 1.0, 1.0] and total == pytest.approx(5.3)


def test_counts_of_a_killed_process_stay_and_go_on(tmp_path: Path) -> None:
    for rounds in (1, 2, 3):
        process = counting(tmp_path, 1000, "die")
        process.communicate()
        assert process.returncode == 9
        found = only(tmp_path)
        assert found.values[REQUESTS] == (1000.0 * rounds,) and not found.alive


def test_series_are_found_by_name_when_there_are_others_now(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path, "primary", ALL)
    file.values[file.offset(REQUESTS)] += 5.0
    file.histogram(SECONDS).observe(0.5)
    other = Series("seconds", "histogram", (), (0.1, 2.0))
    new = MetricsFile(tmp_path, "primary", [Series("first", "counter"), other, REQUESTS])
    new.values[new.offset(REQUESTS)] += 1.0
    found = only(tmp_path)
    assert found.values[REQUESTS] == (6.0,)
    # With other buckets it begins anew.
    assert found.values[other] == (0.0, 0.0, 0.0, 0.0)


def test_file_of_a_process_that_lives_is_not_taken(tmp_path: Path) -> None:
    process = counting(tmp_path, 10, "stay")
    assert process.stdout is not None and process.stdout.readline() == "counted\n"
    with pytest.raises(FileInUse, match=f"process {process.pid} counts in"):
        MetricsFile(tmp_path, "worker@0", ALL)
    process.communicate()
    MetricsFile(tmp_path, "worker@0", ALL)
    assert only(tmp_path).values[REQUESTS] == (10.0,)


def test_two_that_start_at_once_do_not_end_each_other(tmp_path: Path) -> None:
    """As a job that its timer and a person start."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", STARTING, str(tmp_path)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "0"], done.stderr
    assert {path.suffix for path in tmp_path.iterdir()} <= {".metrics"}


def test_oldest_sample_is_what_rates_begin_with(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path, "primary", ALL)
    for _ in range(5):
        file.values[file.offset(REQUESTS)] += 1.0
        file.sample()
    found = only(tmp_path)
    assert found.before is not None
    # The last three samples: 3, 4 and 5.
    assert found.before[REQUESTS] == (3.0,) and found.values[REQUESTS] == (5.0,)
    assert found.span_s >= 0


def test_files_of_units_that_are_gone_are_removed_after_a_week(tmp_path: Path) -> None:
    old = time.time() - KEPT_S - 60
    counting(tmp_path, 1, "die").communicate()
    (tmp_path / "worker@0.metrics").rename(tmp_path / "worker@7.metrics")
    counting(tmp_path, 1, "die").communicate()
    MetricsFile(tmp_path, "primary", ALL)
    os.utime(tmp_path / "worker@7.metrics", (old, old))
    os.utime(tmp_path / "primary.metrics", (old, old))  # its process lives
    remove_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "primary.metrics",
        "worker@0.metrics",
    ]


@pytest.mark.parametrize("data", [b"", b"cordata1", b"x" * 100, b"cordata1" + b"\xff" * 8 + b"{}"])
def test_file_of_another_format_is_skipped_and_replaced(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "primary.metrics"
    path.write_bytes(data)
    assert read(path) is None and read_all(tmp_path) == []
    MetricsFile(tmp_path, "primary", ALL)
    assert only(tmp_path).values[REQUESTS] == (0.0,)


@pytest.mark.parametrize("floats", [1, 5])
def test_file_is_skipped_and_replaced_when_it_was_cut_off(tmp_path: Path, floats: int) -> None:
    first = MetricsFile(tmp_path, "worker@0", ALL)
    first.end()
    (path,) = tmp_path.glob("worker@0*")
    os.truncate(path, path.stat().st_size - 8 * floats)
    assert read(path) is None
    MetricsFile(tmp_path, "worker@0", ALL)
    assert only(tmp_path).unit == "worker@0"


def test_process_goes_on_and_is_counted_when_no_descriptor_is_free(tmp_path: Path) -> None:
    """Its files in /proc cannot be opened then; the event loop that ticks must not fail."""
    metrics = open_metrics(tmp_path, "worker@0", [WAITING_UNITS.series()])
    assert metrics is not None
    metrics.watch(WAITING_UNITS.series(), lambda: 7.0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        metrics.tick()
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert only(tmp_path).values[WAITING_UNITS.series()] == (7.0,)


def test_only_the_user_of_the_service_can_read_the_file(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        MetricsFile(tmp_path / "run" / "metrics", "worker@0", ALL)
    finally:
        os.umask(umask)
    run = tmp_path / "run"
    made = (run, run / "metrics", run / "metrics" / "worker@0.metrics")
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o600]


@needs_root
def test_process_that_starts_on_a_full_disk_is_counted_when_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        before = MetricsFile(disk / "metrics", "worker@0", ALL)
        before.values[before.offset(REQUESTS)] += 5.0
        fill(disk / "filler")
        file = MetricsFile(disk / "metrics", "worker@0", ALL)
        file.values[file.offset(REQUESTS)] += 1.0
        file.sample()
        assert only(disk / "metrics").values[REQUESTS] == (5.0,)  # of the process before
        (disk / "filler").unlink()
        file.sample()
        found = only(disk / "metrics")
        assert found.values[REQUESTS] == (6.0,) and found.pid == os.getpid() and not found.ended
        file.values[file.offset(REQUESTS)] += 1.0
        file.end()
        found = only(disk / "metrics")
        assert found.values[REQUESTS] == (7.0,) and found.ended
        assert [path.name for path in (disk / "metrics").iterdir()] == ["worker@0.metrics"]
        assert (disk / "metrics" / "worker@0.metrics").stat().st_mode & 0o777 == 0o600


@needs_root
def test_counters_stay_when_another_process_of_the_unit_counted_since_the_full_disk(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        fill(disk / "filler")
        file = MetricsFile(disk / "metrics", "worker@0", ALL)
        (disk / "filler").unlink()
        counting(disk / "metrics", 5, "end").communicate()
        file.end()
        assert only(disk / "metrics").values[REQUESTS] == (5.0,)
