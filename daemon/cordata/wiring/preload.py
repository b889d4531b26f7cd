"""Imports the modules of workers in `cordata server`, so that its forked workers share them."""
# ruff: noqa: F401 - imported only to be loaded

from __future__ import annotations

from pathlib import Path

from cordata.app_loader import load
from cordata.broker.factory import is_store
from cordata.store import Queries
from cordata.store.factory import dialect_of, store_class


def import_all(config: str | Path | None, app: str | None) -> None:
    """Import the application, and modules that its workers import within functions; read its SQL.

    Modules of the primary only are left out, as no process would share them. Raises: ConfigError.
    """
    import concurrent.futures.thread

    import sdnotify
    import systemd.daemon
    import uvloop

    import cordata.http
    import cordata.network
    import cordata.services.consumer
    import cordata.services.idle_exit
    import cordata.services.process_lease
    import cordata.services.unhandled_event
    import cordata.wiring.event_loop
    import cordata.wiring.worker

    loaded = load(config, app)
    store_class(loaded.config.store)
    Queries.load(loaded.app.query_packages, dialect_of(loaded.config.store))
    if loaded.app.commands:
        import cordata.pool.shared.sessions
        import cordata.services.pool_child
    if loaded.app.subscriptions:
        import cordata.services.subscription
    if loaded.config.metrics.listen:
        import cordata.services.local_http
        import cordata.services.metrics
    if not is_store(loaded.config.broker):
        import cordata.broker.redis.broker
