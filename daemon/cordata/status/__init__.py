"""`cordata status`: what runs, what waits, and whether that is healthy.

snapshot   the records: all that is known at one moment
collect    fills them from systemd, the store, the pool and the disk, each bounded in time
judge      a snapshot -> healthy, degraded or down, with the reasons; no IO
tables     a snapshot -> tables of text and the JSON document, for the command and the page
page       the status page: [status] listen
"""
