"""Traces: the history of an arrangement, how it is looked up, compacted, put on disk and saved.

A trace adds up to what was appended, at every time that may still be read. It may import
``timely.differential.updates`` and below.
"""
