"""An application of which one version has commands that the other one does not know yet."""

from __future__ import annotations

import os

from tests.integration.server.tiny import serve

from cordata import App, Event, EventContext

COMMANDS = "tests.integration.pool.child.commands"
app = App("mixed")
app.mount("", serve)
app.command("about", at=f"{COMMANDS}:about")
app.command("wait", at=f"{COMMANDS}:wait")
app.command("die", at=f"{COMMANDS}:note_and_die", idempotent="MIXED_NEW" in os.environ, retries=1)
if "MIXED_NEW" in os.environ:
    app.command("new_about", at=f"{COMMANDS}:about")
    app.command("new_wait", at=f"{COMMANDS}:wait")


@app.on("asked")
async def ask(event: Event, ctx: EventContext) -> None:
    """Call the new command, in whichever version; note the event when it is done."""
    await ctx.pool.execute("new_about", timeout=30.0)
    with open(os.environ["MIXED_DONE"], "a") as file:
        file.write(f"{event.payload['number']}\n")
