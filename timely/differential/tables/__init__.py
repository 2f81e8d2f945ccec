"""Tables: collections with a schema, and SQL over them that stays right while the data changes. Needs the extra ``sql``."""

from timely.differential.tables.reading import read_table
from timely.differential.tables.views import GroupedTable, Table, sql, table

__all__ = ["GroupedTable", "Table", "read_table", "sql", "table"]
