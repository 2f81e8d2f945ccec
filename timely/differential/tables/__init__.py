"""Tables: collections with a schema, and SQL over them that stays right while the data changes. Needs the extra ``sql``."""

from timely.errors import ConfigurationError

try:
    from timely.differential.tables.names.user_functions import UserFunction, function
    from timely.differential.tables.sources import read_table, source_tables, sql, table
    from timely.differential.tables.table_class import GroupedTable, Table
except ModuleNotFoundError as error:
    if (package := (error.name or "").partition(".")[0]) not in ("pyarrow", "sqlglot"):
        raise
    raise ConfigurationError(f'tables need the package {package}: pip install "timely-dataflow[sql]"') from error

__all__ = ["GroupedTable", "Table", "UserFunction", "function", "read_table", "source_tables", "sql", "table"]
