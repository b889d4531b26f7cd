"""The status page: what `cordata status` prints, live in a browser, with three actions.

access   the token, and sessions
view     snapshot and lists -> the parts of the page; templates -> HTML
app      the ASGI application: which page, who may see it, actions, the stream of changes

Nothing is collected, and no template is loaded, before somebody looks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cordata.app_loader import Loaded
from cordata.context import Context
from cordata.context_factory import status_token
from cordata.runner import Service
from cordata.services.local_http import LocalHttpService
from cordata.status.page.app import StatusPage


def page_service(loaded: Loaded) -> Callable[[Context], list[Service]]:
    """The service that a worker runs. Raises: ConfigError when the token is missing."""
    config, token = loaded.config, status_token(loaded.config)
    # A child of `cordata server` is no unit; systemd.exec(5) describes the variable.
    with_units = os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())

    def build(ctx: Context) -> list[Service]:
        page = StatusPage(ctx, loaded, token, with_units=with_units)
        lock, proxies = config.paths.runtime / "status.lock", config.http.trusted_proxies
        listen = config.status.listen
        return [LocalHttpService("status page", page, listen, lock=lock, trusted_proxies=proxies)]

    return build
