"""The worker's half: it keeps its children alive, and answers while they compute.

services/poolchild.py starts it in a worker.

- keeper: one child and its spare: started, watched, replaced
- process: one child as its worker sees it
- spawning: how a child is started
- output: what a child prints, on its way to the journal
- control: the socket on which clients and operators ask the worker
- session_answers: operations on sessions and globals
"""
