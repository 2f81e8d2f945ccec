"""The tables and queries of TPC-H or TPC-DS, made by DuckDB's extension: a program of its own, run by ``benchmarks.views``.

Arguments: ``tpch`` or ``tpcds``, a scale, and a folder. It writes each table as Parquet, and the queries as ``queries.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb


def main(suite: str, scale: str, folder: str) -> None:
    """Write the files."""
    packages = Path(duckdb.__file__).parent.parent
    extension = next(packages.glob(f"duckdb_ext/extensions/*/*/{suite}.duckdb_extension"))
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"load '{extension}'")
    connection.execute(f"call {'dbgen' if suite == 'tpch' else 'dsdgen'}(sf={float(scale)})")
    for (name,) in connection.execute("show tables").fetchall():
        connection.execute(f"copy {name} to '{folder}/{name}.parquet'")
    texts = [text for _, text in connection.execute(f"select query_nr, query from {suite}_queries() order by 1").fetchall()]
    (Path(folder) / "queries.json").write_text(json.dumps(texts))


if __name__ == "__main__":
    main(*sys.argv[1:])
