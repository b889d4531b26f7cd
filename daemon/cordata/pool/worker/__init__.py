"""The worker's part: starts, watches and replaces children, and answers while they compute.

services/pool_child.py starts it in a worker.

- child_supervisor: one child and its spare: started, watched, replaced
- process: one child process: its health, its channel, its end
- spawning: how a child is started
- output: what a child prints, on its way to the journal
- control: the socket for requests of clients and operators
"""
