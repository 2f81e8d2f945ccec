"""Operators of SQL on collections: joins, groups, windows, sets, orders.

Each is a function from collections to a collection. It may import the wings ``values`` and ``expressions``.
"""
