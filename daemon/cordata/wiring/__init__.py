"""Builds each role from the configuration: the only package that knows every class.

A role imports its own module here and no other's.
"""
