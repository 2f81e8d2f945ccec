"""Manifests and fences: which state files make a checkpoint, and which run owns the store.

A checkpoint exists once its manifest does, which is written last. A *run* is one opening of recovery by all workers; its *fence*
names the checkpoint that it resumes from, so that later commits of older runs are in no lineage. Both begin with a format and a
digest, which is verified before anything else is read. Nothing here does I/O.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

from timely.dataflow.containers.pickling import dumps
from timely.errors import ChangedDataflowError, CheckpointError, brief, error_text
from timely.recovery.relations import RelationGraph, Relations
from timely.recovery.state_file import Key, digest
from timely.recovery.store import PARTIAL

FORMAT: Final = 5

MANIFEST: Final = ".manifest"
FENCE: Final = ".fence"
CLAIM: Final = ".claim"
STATE: Final = ".state"

_NAME: Final = re.compile(
    rf"([0-9]{{8}}-[0-9a-f]{{8}})({FENCE}|{CLAIM}|-[0-9]{{8}}({MANIFEST}|-[0-9]{{5}}{STATE}))({PARTIAL})?".replace(".", r"\.")
)
"""The name of a recovery file, finished or not; the first group is its run."""
_AS_THEY_ARE: Final = ("name", "version", "parent", "peers", "in_flight", "migrates")
"""Fields of a manifest that its file has as they are."""
_HEAD: Final = re.compile(rb"timely (\w+) (\d+) ([0-9a-f]{32})\n")


def run_name(generation: int, token: str) -> str:
    """Return the name of a run; later generations compare greater."""
    return f"{generation:08d}-{token}"


def checkpoint_name(run: str, number: int) -> str:
    """Return the name of a run's ``number``-th checkpoint; later ones compare greater."""
    return f"{run}-{number:08d}"


def state_name(checkpoint: str, worker: int) -> str:
    """Return the name of one worker's state file."""
    return f"{checkpoint}-{worker:05d}{STATE}"


def run_of(name: str) -> str | None:
    """Return the run that a file belongs to; ``None`` for a name of another program."""
    parts = _NAME.fullmatch(name)
    return parts[1] if parts else None


def generation_of(run: str) -> int:
    """Return the generation in the name of a run or file."""
    return int(run.split("-")[0])


def marks(names: Iterable[str]) -> list[str]:
    """Return the names that show that their run has claimed a store."""
    return [name for name in names if name.endswith((CLAIM, FENCE, MANIFEST)) and run_of(name) is not None]


def records(names: Iterable[str]) -> set[str]:
    """Return the names of records: what says where the next run starts from."""
    return {name for name in marks(names) if not name.endswith(CLAIM)}


@attrs.frozen
class FileInfo:
    """The expected size of a state file in bytes, and the digest of its index."""

    size: int
    digest: str


@attrs.frozen
class Layer:
    """The snapshot (``full``) or changes of a state part in one checkpoint, written by ``peers`` workers.

    ``key`` is what the part was called there, where that was another name.
    """

    checkpoint: str
    peers: int
    full: bool
    bytes: int
    key: Key | None = None


@attrs.frozen
class Manifest:
    """A checkpoint. ``layers`` lists what to read for each state part, oldest first; ``files`` all files that hold them."""

    name: str
    version: str
    parent: str | None
    time: Any
    notes: list[Any]
    peers: int
    dataflows: list[Relations]
    layers: dict[Key, list[Layer]]
    files: dict[str, FileInfo]
    in_flight: bool = False
    """Whether it has messages that were in flight, so that only as many workers can go on."""
    migrates: bool = False
    """Whether it has the rows of named tables and views, so that a changed program can go on."""

    @property
    def file(self) -> str:
        return self.name + MANIFEST

    @property
    def run(self) -> str:
        """The run that wrote this checkpoint."""
        return self.name.rpartition("-")[0]

    @property
    def number(self) -> int:
        """The checkpoint's number in its run."""
        return int(self.name.rpartition("-")[2])

    def encode(self) -> bytes:
        """Return the file content."""
        content = {
            **{field: getattr(self, field) for field in _AS_THEY_ARE},
            "boundary": brief(self.time),
            "time": base64.b64encode(dumps(self.time)).decode(),
            "notes": [base64.b64encode(dumps(note)).decode() for note in self.notes],
            "dataflows": [{name: attrs.astuple(of) for name, of in relations.items()} for relations in self.dataflows],
            "layers": [[*key, [attrs.astuple(layer) for layer in layers]] for key, layers in self.layers.items()],
            "files": {name: [info.size, info.digest] for name, info in self.files.items()},
        }
        return _seal("checkpoint", content)

    @classmethod
    def decode(cls, data: bytes, *, described: bool = False) -> Manifest:
        """Return the encoded manifest. ``CheckpointError`` for damage, ``ChangedDataflowError`` for another format.

        One that is only ``described`` is read without pickle, whoever wrote it: its time is a text, and it has no notes.
        """
        content = _unseal("checkpoint", data)
        if outside := [name for name in content["files"] if run_of(name) is None]:
            raise CheckpointError(f"{outside[0]!r} is no state file")
        try:
            time = content["boundary"] if described else pickle.loads(base64.b64decode(content["time"]))
            notes = [] if described else [pickle.loads(base64.b64decode(note)) for note in content["notes"]]
        except Exception as error:
            raise ChangedDataflowError(
                f"its time {content['boundary']} or its notes cannot be read by this program ({error_text(error)}):"
                " run the program that wrote them, or use another directory to start anew"
            ) from error
        return cls(
            **{field: content[field] for field in _AS_THEY_ARE},
            time=time,
            notes=notes,
            dataflows=[_decoded(relations) for relations in content["dataflows"]],
            layers={(d, path, part): [_layer(*of) for of in layers] for d, path, part, layers in content["layers"]},
            files={name: FileInfo(*info) for name, info in content["files"].items()},
        )


@attrs.frozen
class Fence:
    """A run and the checkpoint that it resumes from, if any: its first record."""

    run: str
    start: str | None

    @property
    def file(self) -> str:
        return self.run + FENCE

    def encode(self) -> bytes:
        """Return the file content."""
        return _seal("fence", {"run": self.run, "start": self.start})

    @classmethod
    def decode(cls, data: bytes) -> Fence:
        """Return the encoded fence; errors as for a manifest."""
        return cls(**_unseal("fence", data))


def _seal(kind: str, content: dict[str, Any]) -> bytes:
    """Return a content behind a header with its kind, the format, and the digest of all of it."""
    start, body = f"timely {kind} {FORMAT} ".encode(), json.dumps(content, indent=1).encode()
    return start + digest(start + body).encode() + b"\n" + body


def _layer(checkpoint: str, peers: int, full: bool, size: int, key: Any) -> Layer:
    return Layer(checkpoint, peers, full, size, key and (key[0], key[1], key[2]))


def _decoded(relations: dict[str, list[Any]]) -> Relations:
    return {name: RelationGraph(kind, text, tuple(reads), tuple(lines)) for name, (kind, text, reads, lines) in relations.items()}


def _unseal(kind: str, data: bytes) -> Any:
    head = _HEAD.match(data)
    if head is None or head[1] != kind.encode():
        raise CheckpointError(f"it does not begin as a {kind} does")
    if digest(data[: head.start(3)] + data[head.end() :]) != head[3].decode():
        raise CheckpointError("its digest is not that of its content")
    if int(head[2]) != FORMAT:
        raise ChangedDataflowError(
            f"it has format {int(head[2])}, and this version of the library reads format {FORMAT}: use the version that wrote it,"
            " or another directory to start anew"
        )
    return json.loads(data[head.end() :])
