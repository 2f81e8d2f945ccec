"""Sinks of streams: where each epoch is written once, however often the driver is killed and delivers it again.

The invariant: a sink has every epoch that was delivered once, as a whole; a reader never sees a part of one. Epochs are known by
the stream's id, which is in its checkpoint, and their number. Runs on the driver; rows go from Spark's tasks to the sink.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from timely.errors import CheckpointError, ConfigurationError
from timely.recovery.store import is_uri
from timely.spark.connect import is_connect

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
"""Columns of rows by which a view changes: ``delete`` or ``insert``, and the epoch."""

ForeachEpoch = Callable[[int, Mapping[str, DataFrame]], object]
"""Takes the outputs of an epoch: ``foreach_epoch(epoch, {name: DataFrame})``."""


@attrs.frozen
class SinkContext:
    """What a sink is opened for: a stream, by the id in its checkpoint, and the columns of its outputs.

    The only view of :func:`timely.differential.spark.maintain` has the name ``""``.
    """

    session: SparkSession
    stream: str
    outputs: Mapping[str, StructType]


@runtime_checkable
class Sink(Protocol):
    """Where the epochs of a stream go: :class:`ParquetSink`, :class:`DeltaSink`, :class:`JdbcSink`, or one of your own."""

    def open(self, context: SinkContext) -> ForeachEpoch:
        """Prepare for a start of the stream, on the driver; return what takes its epochs. An error ends the start."""


def check_sink(name: str, sink: object) -> None:
    """Raise ``ConfigurationError`` for what is neither a function nor a sink.

    >>> check_sink("foreach_epoch", None)
    Traceback (most recent call last):
    timely.errors.ConfigurationError: foreach_epoch must be a function of an epoch and its tables, or a sink, not None
    """
    if not callable(sink) and not isinstance(sink, Sink):
        raise ConfigurationError(f"{name} must be a function of an epoch and its tables, or a sink, not {sink!r}")


def check_without_java(name: str, sink: object) -> None:
    """Raise ``ConfigurationError`` for a sink that works through Spark's Java, which a session of Spark Connect has not, and for
    a folder that is relative to one here.

    >>> check_without_java("foreach_epoch", ParquetSink("/data/components"))
    Traceback (most recent call last):
    timely.errors.ConfigurationError: foreach_epoch: over Spark Connect there is no ParquetSink: give a DeltaSink, or a function
    >>> check_without_java("foreach_epoch", DeltaSink("out"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    timely.errors.ConfigurationError: the folder 'out' of a sink is relative to a folder of this machine, and Spark's ...
    """
    if not isinstance(sink, type) and getattr(sink, "needs_java", False):
        raise ConfigurationError(f"{name}: over Spark Connect there is no {type(sink).__name__}: give a DeltaSink, or a function")
    if isinstance(sink, DeltaSink) and _is_relative(sink.folder):
        raise _refused(sink.folder)


def _folder(folder: object) -> str:
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise ConfigurationError(f"the folder of a sink must be a path or a URI, not {folder!r}")
    text = str(os.fspath(folder))
    is_uri(text)  # an error for one that has lost a slash
    return text.rstrip("/") or "/"


def _placed(folder: str, session: SparkSession) -> str:
    """Return a folder as Spark has it: a relative one is below Python's where Spark's files are on this machine."""
    if not _is_relative(folder):
        return folder
    if not is_connect(session):
        spark: Any = session.sparkContext
        if spark._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(spark._jsc.hadoopConfiguration()).getScheme() == "file":
            return os.path.abspath(folder)
    raise _refused(folder)


def _is_relative(folder: str) -> bool:
    return not is_uri(folder) and not os.path.isabs(folder)


def _refused(folder: str) -> ConfigurationError:
    return ConfigurationError(
        f"the folder {folder!r} of a sink is relative to a folder of this machine, and Spark's files are elsewhere: give an"
        " absolute path or a URI"
    )


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if name else folder


# -- folders -----------------------------------------------------------------------------------------------------------

_OBJECT_STORES = ("cosn", "gs", "oss", "s3", "s3a", "s3n", "swift", "wasb", "wasbs")
"""File systems that rename a folder file by file."""


@attrs.frozen
class ParquetSink:
    """Writes Parquet files: for each output a folder of its name, in it a folder ``epoch=<n>`` for each epoch.

    An epoch's folder appears as a whole, by one rename, and stays as it is when the epoch is delivered again. With ``keep`` only
    so many of the newest epochs stay. The folder belongs to one checkpoint. Raises :class:`~timely.errors.ConfigurationError`
    for a folder that has something else, and for an object store, which cannot rename a folder at once. A relative folder is
    below Python's, and refused where Spark's default file system is not that of this machine.

    >>> from timely.spark import ParquetSink
    >>> ParquetSink("/data/components", keep=0)
    Traceback (most recent call last):
    timely.errors.ConfigurationError: keep must be an integer of 1 or more, or None for all epochs, not 0
    """

    needs_java: ClassVar[bool] = True
    folder: str = attrs.field(converter=_folder)
    keep: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        keep = self.keep
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise ConfigurationError(f"keep must be an integer of 1 or more, or None for all epochs, not {keep!r}")

    def open(self, context: SinkContext) -> ForeachEpoch:
        """Mark the folders as those of this stream, and delete what a killed driver had not finished."""
        whole = _placed(self.folder, context.session)
        folders = {name: _EpochFolder(context, _below(whole, name)) for name in context.outputs}

        def take(epoch: int, tables: Mapping[str, DataFrame]) -> None:
            for name, folder in folders.items():
                folder.write(epoch, tables[name])
                if self.keep is not None:
                    folder.delete(f"epoch={epoch - self.keep}")

        return take


class _EpochFolder:
    """A folder with a folder for each epoch of one stream."""

    def __init__(self, context: SinkContext, folder: str) -> None:
        self._context = context
        self._uri = folder
        spark: Any = context.session.sparkContext
        self._gateway = spark._gateway
        self._hadoop = spark._jvm.org.apache.hadoop.fs
        configuration, root = spark._jsc.hadoopConfiguration(), self._path("")
        scheme = root.toUri().getScheme() or self._hadoop.FileSystem.getDefaultUri(configuration).getScheme()
        if scheme in _OBJECT_STORES:
            raise ConfigurationError(
                f"a ParquetSink needs a file system that renames a folder at once, and {folder} is in an object store: use a"
                " DeltaSink"
            )
        self._local = scheme == "file"
        self._files = root.getFileSystem(configuration)
        self._renames = self._hadoop.FileContext.getFileContext(self._files.makeQualified(root).toUri(), configuration)
        self._claim()

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(_below(self._uri, name))

    def _claim(self) -> None:
        """Mark the folder. ``ConfigurationError`` where it has the epochs of another checkpoint, or something else."""
        mark = self._path(f"_run-{self._context.stream}")
        if not self._files.exists(mark):
            if len(self._files.globStatus(self._path("*")) or ()):
                raise ConfigurationError(
                    f"{self._uri} is not empty, and not of this checkpoint: give another folder, or delete it"
                )
            self._files.mkdirs(mark)
        for draft in self._files.globStatus(self._path("_writing*")):
            self._files.delete(draft.getPath(), True)

    def write(self, epoch: int, frame: DataFrame) -> None:
        """Write an epoch, unless it is there."""
        target = self._path(f"epoch={epoch}")
        if self._files.exists(target):
            return
        # Readers pass over names that begin with "_". A driver that was replaced may still write: each has names of its own.
        draft = f"_writing-{secrets.token_hex(4)}"
        frame.write.parquet(str(self._path(draft)))
        self._sync(draft, files=True)
        try:
            self._renames.rename(self._path(draft), target, self._gateway.new_array(self._hadoop.Options.Rename, 0))
        except Exception as error:
            self.delete(draft)
            if self._files.exists(target):  # a second driver was quicker, with the same rows
                return
            raise CheckpointError(f"{self._path(draft)} cannot be renamed to {target}: {error}") from error
        self._sync("")

    def _sync(self, name: str, files: bool = False) -> None:
        """Flush a local folder and its files to disk, which Spark leaves to the system: a machine may go down."""
        if self._local:
            folder = str(self._path(name).toUri().getPath())
            for path in [*([entry.path for entry in os.scandir(folder)] if files else []), folder]:
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def delete(self, name: str) -> None:
        """Delete a folder, if it is there."""
        self._files.delete(self._path(name), True)


# -- tables of Delta ---------------------------------------------------------------------------------------------------


@attrs.frozen
class DeltaSink:
    """Writes Delta tables, a folder for each output, and has Delta skip an epoch that a table has.

    Each write has the options ``txnAppId``, from the id of the checkpoint, and ``txnVersion``, the epoch. ``overwrite`` replaces
    the table's rows by those of each epoch, where others are appended. The session needs Delta's package (``delta-spark``).

    >>> from timely.spark import DeltaSink
    >>> DeltaSink("s3a://lake/components/").folder
    's3a://lake/components'
    """

    folder: str = attrs.field(converter=_folder)
    overwrite: bool = attrs.field(default=False, kw_only=True)

    def open(self, context: SinkContext) -> ForeachEpoch:
        """Return what writes an epoch."""
        mode, folder = "overwrite" if self.overwrite else "append", _placed(self.folder, context.session)

        def take(epoch: int, tables: Mapping[str, DataFrame]) -> None:
            for name, frame in tables.items():
                writer = frame.write.format("delta").mode(mode).option("txnAppId", f"timely-{context.stream}-{name}")
                writer.option("txnVersion", epoch).save(_below(folder, name))

        return take
