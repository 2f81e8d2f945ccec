"""What a stream is, so far as its checkpoint depends on it: its inputs, its outputs, and their columns.

Written when a stream is started that has taken in nothing yet and compared ever after. The invariant: rows that wait in a
checkpoint have the columns that the inputs and outputs have now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs
from pyspark.sql.types import StructType

from timely.errors import ChangedDataflowError, CheckpointError, SchemaError
from timely.spark.streaming.directory import Place

FORMAT = 1
"""The version of what is in a stream's directory."""

_NAME = "stream.json"


@attrs.frozen
class Identity:
    """The columns of each input and output, in their order, as one line of text for each column."""

    inputs: Mapping[str, list[str]]
    outputs: Mapping[str, list[str]]

    @classmethod
    def of(cls, inputs: Mapping[str, StructType], outputs: Mapping[str, StructType]) -> Identity:
        """Return the identity of a stream between tables of these schemas."""
        return cls(*({name: list(map(_line, schema)) for name, schema in tables.items()} for tables in (inputs, outputs)))

    def settle(self, place: Place) -> None:
        """Write it to a place, where no epoch has been taken in yet."""
        text = json.dumps({"format": FORMAT, **attrs.asdict(self)}, indent=1)
        place.write(_NAME, lambda file: file.write(text.encode()))

    def check(self, place: Place) -> None:
        """Compare it with the one that was written to a place.

        ``ChangedDataflowError`` for other inputs or outputs, ``SchemaError`` for other columns, ``CheckpointError`` where the
        file is missing or damaged, or of another version.
        """
        try:
            found = json.loads(place.read(_NAME))
            before = Identity(found["inputs"], found["outputs"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{place.uri}/{_NAME} is damaged: {error}. Use a new directory as checkpoint") from error
        if found["format"] != FORMAT:
            raise CheckpointError(f"{place.uri} is of format {found['format']}, and this version of timely reads {FORMAT}")
        for kind, then, now in (("input", before.inputs, self.inputs), ("output", before.outputs, self.outputs)):
            _compare(place, kind, then, now)


def _compare(place: Place, kind: str, then: Mapping[str, list[str]], now: Mapping[str, list[str]]) -> None:
    if list(then) != list(now):
        raise ChangedDataflowError(
            f"the checkpoint {place.uri} is of a stream with the {kind}s {', '.join(then)}; this one has {', '.join(now)}."
            " Use a new directory as checkpoint"
        )
    for name in now:
        if then[name] != now[name]:
            raise SchemaError(
                f"{kind} {name!r} has the columns {', '.join(now[name])}; in the checkpoint {place.uri} it has"
                f" {', '.join(then[name])}. Use a new directory as checkpoint"
            )


def _line(field: object) -> str:
    return f"{field.name} {field.dataType.simpleString()}"  # type: ignore[attr-defined]
