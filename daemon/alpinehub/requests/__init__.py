"""Guest requests as the operator sees them: what became of each, sent again, taken back."""
