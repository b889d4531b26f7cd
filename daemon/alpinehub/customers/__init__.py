"""The people who write to hotels: who is who."""
