"""The pool of warm processes: its manager, its workers, their children, its clients."""
