"""``ArrowStore``: checkpoints on any file system that PyArrow reaches: S3, Google Cloud Storage, Azure, HDFS, or one of fsspec.

An object store shows an object when its upload is complete, so pieces are written under their own names there; other file
systems get them under another name first, and rename them. This module alone of the package needs Arrow, and is imported only
for a URI.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, Final

from timely.errors import ConfigurationError
from timely.recovery.store import PARTIAL

if TYPE_CHECKING:
    import pyarrow.fs

_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})


class ArrowStore:
    """The directory ``path`` of a ``pyarrow.fs.FileSystem``.

    >>> import tempfile, pyarrow.fs
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = ArrowStore(pyarrow.fs.LocalFileSystem(), directory + "/checkpoints")
    ...     store.write("greeting", [b"hello, ", b"world"])
    ...     with store.open("greeting") as file:
    ...         store.names(), file.read()
    (['greeting'], b'hello, world')
    """

    def __init__(self, system: pyarrow.fs.FileSystem, path: str) -> None:
        self.system = system
        self.path = path.rstrip("/")
        self.renames = system.type_name not in _OBJECT_STORES

    @classmethod
    def from_uri(cls, uri: str) -> ArrowStore:
        """Return the store at a URI. ``ConfigurationError`` where PyArrow does not know such, or is not installed."""
        try:
            import pyarrow.fs

            system, path = pyarrow.fs.FileSystem.from_uri(uri)
        except (ImportError, ValueError, OSError) as error:
            raise ConfigurationError(f"no checkpoints can be kept at {uri!r}: {error}") from error
        return cls(system, path)

    def __repr__(self) -> str:
        return f"ArrowStore({self.system.type_name}, {self.path!r})"

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object, or a file that gets its name when it is complete."""
        self.system.create_dir(self.path, recursive=True)
        final = f"{self.path}/{name}"
        beside = final + PARTIAL if self.renames else final
        try:
            with self.system.open_output_stream(beside) as stream:
                for chunk in chunks:
                    stream.write(chunk)
            if beside != final:
                self.system.move(beside, final)
        except BaseException:
            with contextlib.suppress(OSError):
                self.system.delete_file(beside)
            raise

    def open(self, name: str) -> BinaryIO:
        """Open an object for reading at any place of it."""
        file: BinaryIO = self.system.open_input_file(f"{self.path}/{name}")
        return file

    def names(self) -> list[str]:
        """Return the names in the directory; one that does not exist yet is empty."""
        import pyarrow.fs

        selector = pyarrow.fs.FileSelector(self.path, allow_not_found=True)
        return sorted(found.base_name for found in self.system.get_file_info(selector) if found.is_file)

    def delete(self, name: str) -> None:
        """Delete an object."""
        with contextlib.suppress(FileNotFoundError):
            self.system.delete_file(f"{self.path}/{name}")
