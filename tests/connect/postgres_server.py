"""A PostgreSQL server for tests, in a folder of its own, on a Unix socket."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

_OPTIONS: Final = "-c listen_addresses= -c fsync=off -c full_page_writes=off -c wal_level=logical -c max_connections=40"


def folder_of_programs() -> str | None:
    """The folder with ``initdb`` and ``pg_ctl``."""
    on_path = shutil.which("initdb")
    folders = [os.path.dirname(on_path)] if on_path else sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    return folders[-1] if folders else None


def why_not() -> str:
    """Why no server can be started, or nothing."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return "" if folder_of_programs() else "no initdb on PATH or below /usr/lib/postgresql"


class PostgresServer:
    """A server; ``where`` is the connection string of its database."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres"))
        self.where = f"host={self._folder} user=postgres dbname=postgres"
        self._prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []  # it refuses root
        if self._prefix:
            shutil.chown(self._folder, "postgres")
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "--no-sync")
        self.start()
        self._connection: Any = None

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        folder = folder_of_programs()
        assert folder is not None
        command = [*self._prefix, os.path.join(folder, program), *arguments]
        with open(self._folder / "output", "w") as output:
            subprocess.run(command, check=True, stdout=output, stderr=output, cwd="/", timeout=60)

    def start(self) -> None:
        options = f"{_OPTIONS} -k {self._folder}"
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", str(self._folder / "log"), "-w", "start")

    def stop(self) -> None:
        """End it at once, as a crash would."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each on its own; return the rows of the last."""
        import psycopg

        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.where, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def clear(self) -> None:
        """Remove tables, publications and slots."""
        names = [name for (name,) in self("select pubname from pg_publication")]
        self(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where active",
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active",
            *(f'drop publication "{name}"' for name in names),
            "drop schema public cascade",
            "create schema public",
        )
