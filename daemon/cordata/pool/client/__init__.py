"""The client's part: runs in every process that calls commands, also in workers and children.

- client: what handlers and programs call
- sync: the same for threads
- lazy_client: `ctx.pool`, made at its first use
- call: one call: its options, its future and its stream
- dispatcher: all calls of the process, from the queue to the answer or the death of the child
- scheduler: which child gets which call
- queue: the calls that wait
- connection: the connection to one child
- directory: which children and workers there are
- control_client: requests to workers
- session_api: sessions and globals, by such requests
- breaker: refuses commands that kill children
- deadlines: all deadlines behind one timer
- values: encoding of arguments, results and errors
"""
