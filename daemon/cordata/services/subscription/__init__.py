"""The subscriptions to the event store of one worker.

    service.py      a pass: assignment -> read -> store positions
    membership.py   which partitions this process owns
    crash.py        which attempts ended with their process
    reader.py       reads pages of events for the owned partitions
    runners.py      starts and stops the owned partitions
    partition.py    one partition: its events one after the other

A partition:

    free ──claim, term + 1──> owned ──event ended, position stored──> free
                                │
                                ├──handled──> position moves on, attempts 0
                                ├──failed──> attempts + 1; again after a pause, later events wait
                                ├──retries used up──> blocked, until an operator resumes it
                                │                     (or a dead letter, and the position moves on)
                                └──owner dead or not renewed──claimed by another, term + 1

A statement that moves a position names owner and term, so a process that lost the partition changes
nothing.

A pass costs one or two reads, whatever the number of partitions; an idle process reads the table of
partitions from time to time.
"""

from cordata.services.subscription.service import SubscriptionService

__all__ = ["SubscriptionService"]
