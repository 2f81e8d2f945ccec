"""Delta tables: their versions as a source, and a sink whose epochs are the table's application transactions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from timely.connect.lake_tables import LakePosition, LakeSink, LakeSource, columns_text
from timely.errors import require_package


def _rows_of(files: Sequence[Any], dataset: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of some files of a dataset."""
    return pa.dataset.FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem).to_table(columns=columns)


class DeltaLakeSource(LakeSource):
    """Reads a Delta table: its rows, and then what each new version changes.

    A read compares the files of two versions, so it takes what wrote them as it comes: a compaction changes nothing. It is in
    memory, as is the first one, of the whole table. ``bounded`` ends a run with the newest version. ``ConnectorError`` where
    the files of the version before were vacuumed, and for another table in its place. Tables with deletion vectors are refused.
    Needs deltalake.
    """

    def __init__(self, table: str | os.PathLike[str], *, name: str | None = None, bounded: bool = False) -> None:
        require_package("deltalake", "DeltaLakeSource", "delta")
        super().__init__(name or os.path.basename(os.path.normpath(table)), bounded)
        self._path = os.fspath(table)

    def _newest(self) -> LakePosition:
        from deltalake import DeltaTable

        table = DeltaTable(self._path)
        return LakePosition(str(table.metadata().id), table.version(), columns_text(pa.schema(table.schema().to_arrow())))

    def _files(self, version: int | None) -> Mapping[str, Any]:
        return {file.path: file for file in self._dataset(version).get_fragments()}

    def _rows(self, version: int | None, files: Sequence[Any]) -> pa.Table:
        return _rows_of(files, self._dataset(version))

    def _dataset(self, version: int | None) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path, version=version).to_pyarrow_dataset()


class DeltaLakeSink(LakeSink):
    """Keeps a Delta table equal to a view whose rows differ in ``key``, exactly once.

    The table is there, and has the columns of the view. An epoch is one version, with its number as that of the application
    transactions ``timely NAME`` and ``timely NAME HISTORY``. Nothing else may change rows; compaction may go on. Needs deltalake.
    """

    def __init__(self, table: str | os.PathLike[str], *, key: str | Sequence[str], name: str | None = None) -> None:
        require_package("deltalake", "DeltaLakeSink", "delta")
        super().__init__(os.path.basename(os.path.normpath(table)), key, name, "Delta")
        self._path = os.fspath(table)
        from deltalake.exceptions import CommitFailedError

        self._conflicts = (CommitFailedError,)

    @property
    def _applications(self) -> list[str]:
        return [f"timely {self.name}", f"timely {self.name} {self._history}"]

    def _load(self) -> tuple[Any, pa.Schema]:
        from deltalake import DeltaTable

        table = DeltaTable(self._path)
        return table, pa.schema(table.schema().to_arrow())

    def _last(self, table: Any) -> tuple[str, int | None]:
        epoch, ours = map(table.transaction_version, self._applications)
        return (self._history if epoch == ours else ""), epoch

    def _keys(self, table: Any, keys: pa.Table) -> pa.Table:
        within = [pa.dataset.field(name).isin(keys[name].combine_chunks()) for name in keys.column_names]
        both = within[0]
        for each in within[1:]:
            both &= each
        dataset = table.to_pyarrow_dataset()
        files = [*dataset.get_fragments(filter=both)]  # their pages have views of texts, with which Arrow compares none
        return _rows_of(files, dataset, keys.column_names).filter(both)

    def _apply(self, table: Any, epoch: int, deletes: pa.Table, updates: pa.Table, inserts: pa.Table) -> None:
        from deltalake import CommitProperties, Transaction

        names = {f"`{name}`": f"s.`{name}`" for name in updates.column_names}
        mark = "_".join(["", *updates.column_names])  # which no column is called
        changes = pa.concat_tables([deletes, updates, inserts], promote_options="default")
        changes = changes.append_column(mark, pa.array([place < len(deletes) for place in range(len(changes))]))
        transactions = [Transaction(name, epoch) for name in self._applications]
        merge = table.merge(
            changes,
            " and ".join(f"t.`{name}` = s.`{name}`" for name in self._key),
            source_alias="s",
            target_alias="t",
            commit_properties=CommitProperties(app_transactions=transactions, max_commit_retries=0),
        )
        merge = merge.when_matched_delete(f"s.`{mark}`").when_matched_update(names).when_not_matched_insert(names)
        merge.execute()
