"""`cordata status`: what runs, what waits, and whether that is healthy.

snapshot   the records: all that is known at one moment
collect    fills them from systemd, the store, the pool and the disk, each bounded in time
judge      a snapshot -> healthy, degraded or down, with the reasons; no IO
"""
