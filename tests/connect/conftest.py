"""A PostgreSQL server, started by the first test that needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connect.postgres_server import PostgresServer, why_not


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """The server, empty."""
    postgres_server.clear()
    return postgres_server
