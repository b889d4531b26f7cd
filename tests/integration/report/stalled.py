"""The hub, whose first rendering waits until its process is killed."""

from __future__ import annotations

from msgspec.structs import replace

from alpinehub.app import app
from alpinehub.report.job import RENDER

__all__ = ["app"]

app.commands[RENDER] = replace(app.commands[RENDER], at="tests.integration.report.stalling:render")
