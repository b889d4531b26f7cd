"""Guest requests for the operator: lists, state and history, resending, cancelling."""
