"""The data of the demo: who requires whom in Debian 12, and what each package is for.

Two compressed CSV files that come with the package. The invariant: the files are read, never written. A caller may
assume that the paths stay valid until the ``with`` block ends, wherever the package is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import attrs


@attrs.frozen
class Debian:
    """Where the files are. ``requires``: package, requires, kind. ``packages``: package, section, installed_kib,
    description.
    """

    requires: Path
    packages: Path


@contextlib.contextmanager
def debian() -> Iterator[Debian]:
    """Return the files of the demo, as paths that can be opened inside the block.

    >>> with debian() as data:
    ...     data.requires.name, data.packages.exists()
    ('debian12-requires.csv.gz', True)
    """
    data = files("timely.cli") / "data"
    with (
        as_file(data / "debian12-requires.csv.gz") as requires,
        as_file(data / "debian12-packages.csv.gz") as packages,
    ):
        yield Debian(requires, packages)
