"""The subscriptions to the event store of one worker.

    service.py      a pass: assignment -> read -> store positions
    membership.py   which partitions are ours
    crash.py        which attempts ended with their process
    runners.py      the partitions that we have: started, stopped, fed with pages of events
    partition.py    one partition: its events one after the other

A pass costs a read or two, whatever the number of partitions; nothing to do costs one look now
and then.
"""

from cordata.services.subscription.service import SubscriptionService

__all__ = ["SubscriptionService"]
