"""The process that runs commands, one call at a time. Lean: it is started often and may crash."""
