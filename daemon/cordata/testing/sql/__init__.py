"""What only a test reads."""
