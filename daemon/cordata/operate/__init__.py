"""What an operator does by command or on the status page, beyond reading a list.

rolling_restart   restarts primary and workers one by one, and stops at the first failure
workers           how many workers this host has; taking one out of service
actions           clears alerts, sends mails again
request_trace     what store and journal know of one request
"""
