"""The subscriptions to the event store of one worker.

    pump:   members -> who lives, which partitions are ours      (membership.py)
            horizon -> up to where it is safe to read
            read    -> one query for all partitions at one place -> queue of each lane
            store   -> positions of what was handled without a commit
    lane:   one partition: its events one after the other        (lane.py)

A pass costs a read or two, whatever the number of partitions; nothing to do costs one look now
and then.
"""

from cordata.services.subscription.service import SubscriptionService

__all__ = ["SubscriptionService"]
