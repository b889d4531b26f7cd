"""Builds each role from the configuration: the only package that knows every class.

A role imports its own module here and no other's: the pool's manager needs neither App nor store.
"""
