"""Plans of queries: records, what makes other records of them, and what builds operators of them.

No plan knows a text, or the parser. It may import the wings ``values``, ``expressions`` and ``operators``.
"""
