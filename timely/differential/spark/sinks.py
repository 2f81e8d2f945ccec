"""Where a view is handed over to: a function of the user's, or a folder of Parquet files. Runs on the driver.

The invariant: a folder has each epoch once, as a whole, however often it is handed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from timely.differential.spark.decoding import CHANGE_TYPE
from timely.errors import ConfigurationError

Mode = Literal["changes", "complete"]

Sink = Callable[[int, Any], object] | str | os.PathLike[str]
"""A function ``(epoch, DataFrame)``, or ``(epoch, {name: DataFrame})`` where there are several views; or the path of a folder."""


def deletes_first(frame: DataFrame) -> DataFrame:
    """Return changes with all deletes before all inserts."""
    kind = F.col(CHANGE_TYPE)
    return frame.where(kind == "delete").unionAll(frame.where(kind == "insert"))


@attrs.frozen
class ParquetSink:
    """Writes views to a folder, or to a folder for each of several: in it a folder ``epoch=<n>`` for each epoch."""

    path: str
    run: str
    """What the checkpoint is known by, so that no two views share a folder."""
    mode: Mode

    def __call__(self, epoch: int, views: DataFrame | Mapping[str, DataFrame]) -> None:
        """Write what is not there yet."""
        if isinstance(views, Mapping):
            for name, frame in views.items():
                self._write(f"{self.path}/{name}", epoch, frame)
        else:
            self._write(self.path, epoch, views)

    def _write(self, folder: str, epoch: int, frame: DataFrame) -> None:
        context: Any = frame.sparkSession.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path
        files = path(folder).getFileSystem(context._jsc.hadoopConfiguration())
        self._claim(files, path, folder)
        target = f"{folder}/epoch={epoch}"
        if not files.exists(path(target)):
            # Readers pass over names that begin with "_", and one rename shows an epoch as a whole.
            frame.write.mode("overwrite").parquet(f"{folder}/_writing")
            if not files.rename(path(f"{folder}/_writing"), path(target)):
                raise ConfigurationError(f"outputs: {folder}/_writing cannot be renamed to {target}")
        if self.mode == "complete":
            files.delete(path(f"{folder}/epoch={epoch - 2}"), True)

    def _claim(self, files: Any, path: Any, folder: str) -> None:
        """Mark a folder as that of this run. ``ConfigurationError`` where it has the epochs of another one."""
        mark = path(f"{folder}/_run-{self.run}")
        if not files.exists(mark):
            if len(files.globStatus(path(f"{folder}/*"))):
                raise ConfigurationError(
                    f"outputs: {folder} is not empty, and not of this checkpoint: give another folder, or delete it"
                )
            files.mkdirs(mark)
