"""Builds each role from the configuration: the only package that knows every class.

A role imports only its own module of this package.
"""
