"""Names: the parser, and the binder, which makes plans of its trees. Nothing outside of this wing knows the parser.

A name means what it means in DuckDB, or is refused. It may import the wings ``values``, ``expressions``, ``operators`` and
``plan``.
"""
