"""Values of SQL: their types, and the functions on one row.

Each function gives what DuckDB gives, or refuses. It may import ``timely.differential`` below tables, and no other wing.
"""
