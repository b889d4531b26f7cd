"""The pool's rules: queue, registry, sessions and what becomes of a call. No IO, no clock."""
