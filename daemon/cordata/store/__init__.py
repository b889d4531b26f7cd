"""The durable store: units of work, group commit, migrations, wake-ups."""

from cordata.store.contract import Lease, Store, StoreStats
from cordata.store.fence import Fence
from cordata.store.migrate import Applied, Chain, SchemaError
from cordata.store.opening import check_url, dialect_of, missing_file, open_store, store_class
from cordata.store.queries import Queries
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
from cordata.store.wish import WISH_S, wish_for, wished_by_another

__all__ = [
    "CHECKPOINT_TOPIC",
    "MAIL_TOPIC",
    "OUTBOX_TOPIC",
    "WISH_S",
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
    "missing_file",
    "new_id",
    "open_store",
    "store_class",
    "wish_for",
    "wished_by_another",
]
