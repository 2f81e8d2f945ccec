"""The files and folders that a dataflow reads, so that none of its outputs removes them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from timely.dataflow import ScopeBuilder

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_PLACES: Final[WeakKeyDictionary[ScopeBuilder[Any], list[Path]]] = WeakKeyDictionary()


def read_places(scope: ScopeBuilder[Any]) -> list[Path]:
    """Return the files and folders that a dataflow reads, which no output may remove."""
    return _PLACES.setdefault(scope.root, [])


def places_of(paths: Paths) -> Iterator[Path]:
    """Yield the files and folders of paths, and of a glob the folder that it begins in."""
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        parts = Path(path).parts
        fixed = len(parts)
        if not os.path.lexists(path):
            fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), fixed)
        yield Path(*parts[:fixed])
