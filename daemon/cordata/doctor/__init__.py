"""Checks of this host and its configuration, for `cordata doctor` and `cordata report-bug`.

host, service   collect: ask systemd, the kernel, the store, Redis, the mail server
judge           values -> findings; no IO
finding         one result; runs checks side by side, each with a time limit
"""
