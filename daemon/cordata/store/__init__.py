"""The durable store: units of work, group commit, migrations, wake-ups."""

from cordata.store.fence import Fence
from cordata.store.lease import PrimaryLease
from cordata.store.migrate import Applied, Chain, SchemaError
from cordata.store.queries import Queries
from cordata.store.sqlite import SqliteStore as Store
from cordata.store.sqlite import StoreStats
from cordata.store.tx import MAIL_TOPIC, OUTBOX_TOPIC, Row, Tx, Unit, UnitMisuse, new_id
from cordata.store.upkeep import CHECKPOINT_TOPIC

__all__ = [
    "CHECKPOINT_TOPIC",
    "MAIL_TOPIC",
    "OUTBOX_TOPIC",
    "Applied",
    "Chain",
    "Fence",
    "PrimaryLease",
    "Queries",
    "Row",
    "SchemaError",
    "Store",
    "StoreStats",
    "Tx",
    "Unit",
    "UnitMisuse",
    "new_id",
]
