"""What clients, workers and children have in common: messages, files and memory.

- protocol: all messages, and how they travel
- page: two pages of shared memory: the state of a child, and which calls it has begun
- paths: the files of a pool, and the place of a child
- spec: the start parameters of a child
- sessions: sessions and globals, one SQLite file; children and workers write it
"""
