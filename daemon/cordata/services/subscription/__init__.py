"""The subscriptions to the event store of one worker.

    service.py      a pass: assignment -> read -> store positions
    membership.py   which partitions are ours
    crash.py        which attempts ended with their process
    reader.py       pages of events for the partitions that we have
    runners.py      the partitions that we have: started and stopped
    partition.py    one partition: its events one after the other

A pass costs a read or two, whatever the number of partitions; nothing to do costs one look now
and then.
"""

from cordata.services.subscription.service import SubscriptionService

__all__ = ["SubscriptionService"]
