"""SQL of the tests of `cordata db copy`."""
