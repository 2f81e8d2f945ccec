"""What the options of ``create source`` and ``create sink`` say: which connector, and how it is made."""

from __future__ import annotations

import os
from typing import Any

from timely import connect
from timely.differential.tables.names.statements import ConnectorDefinition, EnvironmentVariable
from timely.differential.tables.sources import lateness_of
from timely.errors import ConfigurationError
from timely.server.catalog import NO_KEYS


class _Options:
    """Options with the values of variables; each is taken once."""

    def __init__(self, statement: ConnectorDefinition) -> None:
        self.place = f"{statement.kind} {statement.name}"
        self.left: dict[str, str] = {}
        for name, value in statement.options.items():
            if isinstance(value, EnvironmentVariable) and value.name not in os.environ:
                raise ConfigurationError(f"{self.place}: {name} is in the environment as {value.name}, and that is not set")
            self.left[name] = os.environ[value.name] if isinstance(value, EnvironmentVariable) else value

    def take(self, name: str, default: str | None = None) -> str:
        """Return an option; ``ConfigurationError`` where it is needed and missing."""
        value = self.left.pop(name, default)
        if value is None:
            raise ConfigurationError(f"{self.place}: write {name} = '...'")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name, "false")
        if value not in ("true", "false"):
            raise ConfigurationError(f"{self.place}: {name} is 'true' or 'false', not {value!r}")
        return value == "true"

    def brokers(self) -> dict[str, Any]:
        """Return the settings of librdkafka: those with a dot in their name."""
        settings = {name: self.left.pop(name) for name in list(self.left) if "." in name}
        return {"bootstrap.servers": self.take("brokers"), **settings}

    def catalog(self) -> dict[str, str]:
        """Return the name and the properties of an Iceberg catalog: all that is left."""
        properties = {"name": self.take("catalog"), **self.left}
        self.left.clear()
        return properties

    def database(self) -> str:
        """Return the connection string of PostgreSQL."""
        where, password = self.take("connection", ""), self.take("password", "")
        if not password:
            return where
        from psycopg.conninfo import make_conninfo

        return make_conninfo(where, password=password)


def connector_of(statement: ConnectorDefinition) -> tuple[Any, list[str]]:
    """Return a connector, and what it calls the tables of a source, or the key of a sink.

    ``ConfigurationError`` for options that it does not have.
    """
    options = _Options(statement)
    connector, name = options.take("connector"), options.take("name", statement.name)
    if statement.tables:
        tables, schema = statement.tables, statement.tables[0].schema
        theirs = options.take("tables", ",".join(each.name for each in tables)) if connector == "postgres" else name
        names = [each.strip() for each in theirs.split(",")]
        if len({*names}) != len(tables):
            raise ConfigurationError(f"{options.place}: it reads {len({*names})} tables, and {len(tables)} are declared")
    else:
        names = [each.strip() for each in options.take("key").split(",")]
    match statement.kind, connector:
        case "source", "files":
            made: Any = connect.FolderSource(options.take("path"), schema, name=name)
        case "source", "kafka":
            keyed, debezium = options.flag("keyed"), options.flag("debezium")
            if (keyed or debezium) and "_key" not in schema.names:
                raise ConfigurationError(f"{options.place}: rows that replace others by their key have a column _key varchar")
            if keyed and lateness_of(schema, name) is not None:
                raise ConfigurationError(f"{options.place}: its table {NO_KEYS}: declare it without LATENESS")
            url, topic = options.take("registry", ""), options.take("topic", name)
            registry = {"url": url} if url else None
            made = connect.KafkaSource(
                options.brokers(), topic, schema, keyed=keyed, debezium=debezium, registry=registry, name=name
            )
        case "source", "postgres":
            made = connect.PostgresSource(options.database(), names if len(names) > 1 else names[0], name=name)
        case "source", "delta":
            made = connect.DeltaLakeSource(options.take("path"), name=name)
        case "source", "iceberg":
            table = options.take("table", name)
            made = connect.IcebergSource(options.catalog(), table, name=name)
        case "sink", "delta":
            made = connect.DeltaLakeSink(options.take("path"), key=names, name=name)
        case "sink", "iceberg":
            table = options.take("table", name)
            made = connect.IcebergSink(options.catalog(), table, key=names, name=name)
        case "sink", "kafka":
            made = connect.KafkaSink(options.brokers(), options.take("topic", name), key=names, name=name)
        case "sink", "postgres":
            made = connect.PostgresSink(options.database(), options.take("table", name), key=names, name=name)
        case "sink", "sqlite" | "duckdb":
            of_file: Any = connect.SqliteSink if connector == "sqlite" else connect.DuckDBSink
            made = of_file(options.take("path"), options.take("table", name), key=names, name=name)
        case _:
            raise ConfigurationError(f"{options.place}: there is no such connector: {connector!r}")
    if options.left:
        raise ConfigurationError(f"{options.place}: {connector} has no option {', '.join(options.left)}")
    return made, names
