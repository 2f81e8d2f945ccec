"""Names: which column or table each name of a query means.

A name means what it means in DuckDB, or is refused. It may import the wings ``values``, ``expressions`` and ``operators``.
"""
