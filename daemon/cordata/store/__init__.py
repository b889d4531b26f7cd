"""The durable store: units of work, group commit, migrations, wake-ups."""

from cordata.store.contract import Lease, Store, StoreStats, watch
from cordata.store.factory import check_url, dialect_of, missing_file, open_store, store_class
from cordata.store.fence import Fence
from cordata.store.migrate import Chain, MigrationId, SchemaError
from cordata.store.queries import Queries
from cordata.store.runtime_store import RuntimeStore
from cordata.store.tx import (
    CLAIMABLE_TOPIC,
    MAIL_TOPIC,
    Row,
    Tx,
    Unit,
    UnitMisuse,
    new_id,
    published_topic,
    published_types,
)

__all__ = [
    "CLAIMABLE_TOPIC",
    "MAIL_TOPIC",
    "Chain",
    "Fence",
    "Lease",
    "MigrationId",
    "Queries",
    "Row",
    "RuntimeStore",
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
    "published_topic",
    "published_types",
    "store_class",
    "watch",
]
