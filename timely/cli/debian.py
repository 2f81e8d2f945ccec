"""The data of the demo and of the examples: the packages of Debian 12. ``data/README.md`` describes the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from timely.errors import ConfigurationError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    raise ConfigurationError('the data of Debian need the package pyarrow: pip install "timely-dataflow[arrow]"') from error

DATA: Final = Path(__file__).parent / "data" / "debian12.parquet"
"""One row for each package, with the names that it requires in a list for each kind."""

KINDS: Final = ("depends", "recommends", "suggests")
"""The kinds of requirement, the strictest first."""


def packages() -> pa.Table:
    """Return package, section, installed_kib and description of each package.

    >>> packages().num_rows
    63436
    """
    return pq.read_table(DATA, columns=["package", "section", "installed_kib", "description"])


def requirements(*kinds: str) -> pa.Table:
    """Return package, requires and kind of each requirement of these kinds (of all by default), one kind after the other.

    >>> requirements("suggests").slice(0, 1).to_pylist()
    [{'package': '0ad-data', 'requires': '0ad', 'kind': 'suggests'}]
    """
    parts = []
    for kind in kinds or KINDS:
        table = pq.read_table(DATA, columns=["package", kind]).combine_chunks()
        required = table[kind].combine_chunks()
        requires = pc.list_flatten(required)
        package = table["package"].take(pc.list_parent_indices(required))
        kinds_of = pa.repeat(kind, len(requires))
        parts.append(pa.table({"package": package, "requires": requires, "kind": kinds_of}))
    return pa.concat_tables(parts)
