"""An application that has the pool's prefix to itself."""

from __future__ import annotations

from cordata import App
from cordata.pool.route import PREFIX, PoolRoute

app = App("routed")
app.mount(PREFIX, PoolRoute(("*",)))
