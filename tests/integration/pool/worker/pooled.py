"""An application with commands, named by their place, and an init that takes as long as told."""

from __future__ import annotations

from tests.integration.server.tiny import serve

from cordata import App

COMMANDS = "tests.integration.pool.child.commands"
app = App("pooled")
app.mount("", serve)
for name in (
    "echo",
    "add",
    "fail",
    "about",
    "wait",
    "hang",
    "speak",
    "die",
    "start_another",
    "remember",
    "numbers",
    "numbers_async",
    "endless",
    "nest",
    "nest_async",
    "nest_start",
    "note",
    "note_cancel",
    "much",
    "note_and_die",
    "weigh",
):
    app.command(name, at=f"{COMMANDS}:{name}")
app.command("about_long", at=f"{COMMANDS}:about", timeout=600.0)
app.command("die_twice", at=f"{COMMANDS}:note_and_die", idempotent=True, retries=1)
app.child_init(at=f"{COMMANDS}:take_time")
