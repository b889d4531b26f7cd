"""Other task queues doing the same work: each script runs in an environment of its own."""
