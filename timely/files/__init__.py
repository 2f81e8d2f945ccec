"""Tables in and out: files of Parquet, CSV, JSON and Arrow IPC, and objects with Arrow's C interface, as streams of batches.

Needs PyArrow, which is imported by the functions when they are called.
"""

from timely.files.arrow_objects import read_arrow
from timely.files.read_files import read_csv, read_ipc, read_json, read_parquet
from timely.files.writing import WrittenFile, write_csv, write_ipc, write_json, write_parquet

__all__ = [
    "WrittenFile",
    "read_arrow",
    "read_csv",
    "read_ipc",
    "read_json",
    "read_parquet",
    "write_csv",
    "write_ipc",
    "write_json",
    "write_parquet",
]
