"""The child's part: the process that runs commands, one call at a time.

- main: the process, from its start to its end, and the connections of its clients
- command_runner: calls one command and encodes its answer
- coroutines: the event loop of async commands, imported by the first of them
- current: what a command can ask about its call
- tracked: the session and the globals of a call, with what it changed
- output: marks which call printed what
"""
