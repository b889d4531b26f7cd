"""The application of "Follow one request"."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.host.documents import blocks

from cordata.testing import open_app


@pytest.fixture
def carriers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported from a directory in which its reader wrote it."""
    (text,) = [one for one in blocks("python") if one.startswith("# carriers.py\n")]
    (tmp_path / "carriers.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("carriers")
    sys.modules.pop("carriers", None)


async def test_handler_of_the_documents_passes_its_trace_on(
    carriers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with open_app(carriers.app) as harness:
        headers = {"traceparent": given}
        await harness.ctx.run(lambda tx: tx.publish("parcel.packed", {}, headers=headers))
        await harness.drain()
    assert carriers.headers() == {}
    [line] = [one for one in caplog.messages if one.startswith("would call")]
    assert "'traceparent': '00-4bf92f3577b34da6a3ce929d0e0e4736-" in line
    assert "00f067aa0ba902b7" not in line
