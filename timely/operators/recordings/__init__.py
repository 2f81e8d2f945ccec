"""Streams as events: captured, recorded to files and connections, and replayed.

A recording that breaks off is an error, never a shorter stream. It may import the operators beside it.
"""
