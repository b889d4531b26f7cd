"""The subscriptions to the event store of one worker.

    service.py      a pass: assignment -> read -> store positions
    membership.py   which partitions are ours
    crash.py        which attempts ended with their process
    reader.py       pages of events for the partitions that we have
    runners.py      the partitions that we have: started and stopped
    partition.py    one partition: its events one after the other

A partition:

    free ──claim, term + 1──> owned ──event ended, position stored──> free
                                │
                                ├──handled──> position moves on, attempts 0
                                ├──failed──> attempts + 1; again after a pause, nothing overtakes
                                ├──retries used up──> blocked, until an operator resumes it
                                │                     (or a dead letter, and the position moves on)
                                └──owner dead or not renewed──claimed by another, term + 1

A statement that moves a position names owner and term: a process that lost the partition moves
nothing.

A pass costs a read or two, whatever the number of partitions; nothing to do costs one look now
and then.
"""

from cordata.services.subscription.service import SubscriptionService

__all__ = ["SubscriptionService"]
