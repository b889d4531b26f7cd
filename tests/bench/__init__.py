"""Measurements: cordata beside its peers in one run: only ratios survive a noisy machine."""
