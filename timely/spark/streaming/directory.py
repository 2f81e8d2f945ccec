"""Where a stream keeps what must survive it: a directory that the driver, the workers and Spark's tasks all reach.

The invariant: a file is there as a whole or not at all, and stays once it is written. A :class:`StreamDirectory` travels by
pickle; the names in it are relative, so that it can be moved as a whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import attrs
import pyarrow as pa
from pyarrow import fs

from timely.errors import CheckpointError, ConfigurationError
from timely.recovery import Store, open_store
from timely.recovery.store import is_uri, write_file


@attrs.frozen
class StreamDirectory:
    """A directory, by its URI or path."""

    uri: str
    path: str

    @classmethod
    def at(cls, where: str | os.PathLike[str]) -> StreamDirectory:
        """Return the directory at a path or URI. ``ConfigurationError`` for what is neither, or of an unknown kind."""
        if not isinstance(where, str | os.PathLike) or not str(where):
            raise ConfigurationError(f"checkpoint must be a path or a URI, not {where!r}")
        uri = os.fspath(where)
        if not is_uri(uri):
            uri = Path(uri).absolute().as_uri()
        try:
            _, path = fs.FileSystem.from_uri(_for_arrow(uri))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise ConfigurationError(f"checkpoint: {uri!r} is no place that Arrow can write to: {error}") from error
        return cls(uri.rstrip("/"), path.rstrip("/"))

    @property
    def local(self) -> bool:
        """Whether it is in this machine's file system."""
        return self.uri.startswith("file:")

    def for_spark(self, name: str) -> str:
        """Return the name that Spark has for a file or directory in it."""
        return f"file://{self.path}/{name}" if self.local else f"{self.uri}/{name}"

    def ledger(self) -> Store:
        """Return the store of the epoch log."""
        return open_store(self.for_arrow("ledger"))

    def for_arrow(self, name: str) -> str:
        """Return the name that Arrow has for a file or directory in it."""
        return f"{_for_arrow(self.uri)}/{name}"

    def write(self, name: str, fill: Callable[[BinaryIO], object]) -> None:
        """Write a file with ``fill(file)``, in place of the one of that name. ``CheckpointError`` where that fails."""
        try:
            if self.local:
                self._write_here(f"{self.path}/{name}", fill)
            else:
                system = self._system()
                system.create_dir(f"{self.path}/{name}".rpartition("/")[0])
                with system.open_output_stream(f"{self.path}/{name}") as file:
                    fill(cast(BinaryIO, file))
        except OSError as error:
            raise CheckpointError(f"{self.uri}/{name} cannot be written: {error}") from error

    def _write_here(self, path: str, fill: Callable[[BinaryIO], object]) -> None:
        """Write a draft, sync it to disk, and move it into place."""
        folder, _, name = path.rpartition("/")
        write_file(path, fill, draft=f"{folder}/.{name}.{secrets.token_hex(4)}")

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Open a file for reading. ``CheckpointError`` where it is missing or damaged."""
        try:
            with self._system().open_input_file(f"{self.path}/{name}") as file:
                yield file
        except (OSError, pa.ArrowInvalid) as error:
            raise CheckpointError(f"{self.uri}/{name} cannot be read: {error}") from error

    def read(self, name: str) -> bytes:
        """Return what a file holds. ``CheckpointError`` where there is none."""
        with self.open(name) as file:
            return cast(bytes, file.read())

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none where there is no such folder."""
        infos = self._system().get_file_info(fs.FileSelector(f"{self.path}/{folder}", allow_not_found=True))
        return sorted(info.base_name for info in infos if not info.base_name.startswith("."))

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; a missing one is a no-op."""
        system, path = self._system(), f"{self.path}/{name}"
        kind = system.get_file_info(path).type
        with contextlib.suppress(FileNotFoundError):
            if kind == fs.FileType.Directory:
                system.delete_dir(path)
            elif kind == fs.FileType.File:
                system.delete_file(path)

    def _system(self) -> Any:
        return fs.LocalFileSystem() if self.local else fs.FileSystem.from_uri(_for_arrow(self.uri))[0]


def _for_arrow(uri: str) -> str:
    """Return how Arrow calls a place that Spark calls ``uri``."""
    return "s3" + uri[3:] if uri.startswith(("s3a:", "s3n:")) else uri
