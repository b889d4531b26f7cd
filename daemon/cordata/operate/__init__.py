"""Commands of an operator that direct systemd: one worker after the other, more of them, fewer.

rolling_restart   restarts primary and workers one by one, and stops at the first failure
workers           how many workers this host has; taking one out of service
"""
