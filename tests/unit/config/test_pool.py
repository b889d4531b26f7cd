"""[pool] and [pool.NAME]: what overrides what, and which sections contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordata.config import Config, Document, build, open_document
from cordata.config.show import lines
from cordata.errors import ConfigError


def document(tmp_path: Path, text: str) -> Document:
    path = tmp_path / "cordata.toml"
    path.write_text(text)
    return open_document(path)


REPORT = '[pool.report]\nworkers = ["2"]\ncommands = ["render_*"]\n'


def test_pools_inherit_from_pool_when_a_key_is_not_given(tmp_path: Path) -> None:
    text = "[pool]\nmax_waiting = 7\nretries = 0\n" + REPORT + "call_timeout_s = 5\n"
    config = build(document(tmp_path, text), {}, {})
    report = config.pools["report"]
    assert (report.max_waiting, report.retries, report.call_timeout_s) == (7, 0, 5.0)
    assert (report.workers, report.commands) == (("2",), ("render_*",))
    assert config.pool.workers == ()


def test_pools_are_none_when_there_is_no_section() -> None:
    assert build(Document(path=None), {}, {}).pools == Config().pools == {}


def test_pools_are_shown_and_read_again_the_same(tmp_path: Path) -> None:
    first = document(tmp_path, REPORT + "retries = 2\n")
    config = build(first, {}, {})
    again = document(tmp_path, "\n".join(lines(config, first, [])))
    assert build(again, {}, {}) == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (REPORT + "max_sessions = 3", "[pool.report] max_sessions: applies to all pools: set it"),
        (REPORT + "max_wating = 3", "[pool.report] max_wating: unknown key; the nearest known is"),
        (
            REPORT + "max_waiting = 0",
            "[pool.report] max_waiting: must be a whole number from 1 to 10000000, not 0",
        ),
        ("[pool.x]\nworkers = ['1']", "[pool.x] commands: must name at least one command"),
        ("[pool.x]\ncommands = ['a']", "[pool.x] workers: must name at least one worker"),
        ("[pool.default]\nworkers=['1']\ncommands=['a']", "[pool.default]: a pool's name is"),
        ("[pool.'a b']\nworkers=['1']\ncommands=['a']", "[pool.a b]: a pool's name is"),
        (
            REPORT + '[pool.x]\nworkers = ["2"]\ncommands = ["b"]',
            "[pool.x] workers: names '2', which [pool.report] has",
        ),
        (
            REPORT + '[pool.x]\nworkers = ["3"]\ncommands = ["render_*"]',
            "[pool.x] commands: names 'render_*', which [pool.report] has",
        ),
        ("[pool]\nworkers = ['1']", "[pool] workers: belongs into a section [pool.NAME]"),
        (
            "[pool]\nmax_frame_bytes = 100",
            "[pool] max_frame_bytes: must be a whole number from 1024 to",
        ),
        ("[pool]\nhealth_timeout_s = 31", "[pool] health_timeout_s: must not be more than"),
        ("[pool]\nrestart_first_s = 11", "[pool] restart_first_s: must not be more than"),
        ("[pool]\nretries = -1", "[pool] retries: must be a whole number from 0 to 100, not -1"),
        ("[pool]\naffinity = 'strict'", "[pool] affinity: must be one of 'hint', 'strict_fail'"),
    ],
)
def test_build_names_section_key_and_reason_when_pools_are_wrong(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build(document(tmp_path, text), {}, {})
    (found,) = caught.value.problems
    assert found.removeprefix(f"{tmp_path}/cordata.toml: ").startswith(problem)
