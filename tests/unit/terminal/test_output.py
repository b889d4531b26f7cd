"""Lists and records: the same rows for people, plain where there is no terminal, and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cordata.terminal import show_json, show_page, show_record, show_table

AT = 1_788_000_000_123_456
ROWS: list[dict[str, Any]] = [
    {
        "id": "a1",
        "count": 7,
        "took_s": 1.23456,
        "made_at": AT,
        "note": "x" * 100,
        "payload": '{"a": 1}',
    },
    {
        "id": "b22",
        "count": 1200,
        "took_s": 20.5,
        "made_at": None,
        "note": "[red]bell\x07",
        "payload": "{}",
    },
]


def test_table_is_plain_and_its_cells_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(ROWS, ("id", "count", "took_s", "made_at", "note"))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "ID   COUNT  TOOK S  MADE                      NOTE",
        f"a1       7   1.235  2026-08-29T10:40:00.123Z  {'x' * 100}",
        "b22   1200    20.5  -                         [red]bell\\x07",
    ]


def test_lines_are_never_wrapped_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    columns = [f"column_{number}" for number in range(40)]
    show_table([dict.fromkeys(columns, "some words")], columns)
    show_record({"text": "word " * 500}, json_=False)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 3 and "\x1b" not in out


def test_page_has_the_rows_of_the_table_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_page(ROWS, ("id",), next="p2", json_=True)
    page = json.loads(capsys.readouterr().out)
    assert page["next"] == "p2"
    assert page["items"][0] == {
        "id": "a1",
        "count": 7,
        "took_s": 1.235,
        "made_at": "2026-08-29T10:40:00.123+00:00",
        "note": "x" * 100,
        "payload": {"a": 1},
    }


def test_page_says_where_the_next_one_starts(capsys: pytest.CaptureFixture[str]) -> None:
    show_page(ROWS, ("id",), next="p2", json_=False)
    shown = capsys.readouterr()
    assert shown.out.split() == ["ID", "a1", "b22"]
    assert shown.err == "there is more: --after p2\n"
    show_page([], ("id",), json_=False)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("ID\n", "nothing found\n")


def test_record_has_a_line_for_each_field_and_tables_for_lists(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = {
        "event_id": "e1",
        "dead_at": AT,
        "none": None,
        "kinds": ["a", "b"],
        "ready": True,
        "history": [{"attempt": 1, "error": "KeyError"}],
        "payload": '{"guest": "Eva"}',
    }
    show_record(record, json_=False)
    assert capsys.readouterr().out.splitlines() == [
        "event id  e1",
        "dead at   2026-08-29T10:40:00.123Z",
        "none      -",
        "kinds     a, b",
        "ready     yes",
        "history",
        "ATTEMPT  ERROR",
        "      1  KeyError",
        "payload",
        "  {",
        '    "guest": "Eva"',
        "  }",
    ]


def test_json_keeps_letters_of_all_languages(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"name": "Jörg ✓"})
    assert capsys.readouterr().out == '{\n  "name": "Jörg ✓"\n}\n'
