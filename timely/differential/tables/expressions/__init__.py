"""Expressions compiled to rows and to Arrow kernels, and the stages that run them.

Both compilers give equal values. It may import ``timely.differential.tables.values``.
"""
