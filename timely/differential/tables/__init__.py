"""Tables: collections with a schema, and SQL over them that stays right while the data changes. Needs the extra ``sql``."""

from timely.differential.tables.views import GroupedTable, Table, sql, table

__all__ = ["GroupedTable", "Table", "sql", "table"]
