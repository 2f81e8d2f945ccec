"""Operators over traces: arrangements, joins, reductions, imports and handles.

An operator sends each change once, at the least time at which it holds. It may import the wings ``trace`` and ``updates``,
and below.
"""
