"""The durable store: units of work, group commit, migrations, wake-ups."""

from cordata.store.contract import Lease, Store, StoreStats
from cordata.store.fence import Fence
from cordata.store.migrate import Applied, Chain, SchemaError
from cordata.store.opening import check_url, dialect_of, missing_file, open_store, store_class
from cordata.store.queries import Queries
from cordata.store.takeover import TAKEOVER_S, is_takeover_requested, request_takeover
from cordata.store.topic import Keeper
from cordata.store.tx import (
    CHECKPOINT_TOPIC,
    MAIL_TOPIC,
    OUTBOX_TOPIC,
    Row,
    Tx,
    Unit,
    UnitMisuse,
    new_id,
)

__all__ = [
    "CHECKPOINT_TOPIC",
    "MAIL_TOPIC",
    "OUTBOX_TOPIC",
    "TAKEOVER_S",
    "Applied",
    "Chain",
    "Fence",
    "Keeper",
    "Lease",
    "Queries",
    "Row",
    "SchemaError",
    "Store",
    "StoreStats",
    "Tx",
    "Unit",
    "UnitMisuse",
    "check_url",
    "dialect_of",
    "is_takeover_requested",
    "missing_file",
    "new_id",
    "open_store",
    "request_takeover",
    "store_class",
]
