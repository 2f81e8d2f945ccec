"""State files: the pieces of one worker's state, in blocks by key, with an index at the end.

A file is a sequence of *blocks*, then an index of them in JSON, then a trailer that says where the index lies. A block is one
pickle of ``(routes, items)`` of pieces that belong to one part of one operator, and have the same ``route % modulus``. The
modulus is the greater the more there is, and one that many numbers of workers divide, so that each of any number of workers can
leave out most of what is not its own. Pieces without a route are in blocks with modulus 0. The index has the digest of each
block, and a manifest has that of the index; nothing is unpickled before its digest was found right. Digests guard against
damage. They do not guard against malice: whoever can write to the place where checkpoints lie can have any code run. Writing
and reading take memory for some blocks, never for all of the state.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, TypeAlias

import attrs

from timely.dataflow.operator_state import Piece
from timely.dataflow.pickling import dumps
from timely.errors import CheckpointError, file_error_text

MODULI: Final = (240, 60, 12)
"""By what the routes are told apart: 1 to 6, 8, 10, 12, 15, 16, 20 and 24 divide the first, which is for much state."""
BLOCK: Final = 1 << 15
"""Bytes that a block is to have at least, about, before a greater modulus is taken."""
GATHERED: Final = 1 << 24
"""Bytes of pieces, about, that are gathered before they are written."""

_MAGIC: Final = b"timely-1"
_TRAILER: Final = struct.Struct(">QQ8s")
_MOST: Final = 1 << 17

Key: TypeAlias = tuple[int, str, int]
"""A part of an operator's state: the dataflow's number among those kept, the operator's path, the part's number."""


def digest(data: bytes | bytearray | memoryview) -> str:
    """Return the digest of some bytes, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@attrs.frozen
class Block:
    """Where one block lies, what it must be, and whose it is: of routes with this ``residue``, or without a route for modulus
    0.
    """

    modulus: int
    residue: int
    offset: int
    length: int
    digest: str

    def concerns(self, index: int, peers: int) -> bool:
        """Return whether it may have pieces of worker ``index`` of ``peers``.

        >>> [Block(12, 7, 0, 0, "").concerns(index, 3) for index in range(3)]
        [False, True, False]
        >>> [Block(12, 7, 0, 0, "").concerns(index, 5) for index in range(5)]
        [True, True, True, True, True]
        """
        return self.modulus > 0 and (self.residue - index) % math.gcd(self.modulus, peers) == 0


class StateWriter:
    """Makes the content of one state file: ``chunks(parts)`` to be written, then ``index``, its digest, and sizes.

    >>> writer = StateWriter()
    >>> data = b"".join(writer.chunks([((0, "/flow/count#1", 0), [(7, "seven"), (None, "own")])]))
    >>> len(data) == writer.size, writer.sizes[0, "/flow/count#1", 0] < len(data)
    (True, True)
    """

    def __init__(self) -> None:
        self.size = 0
        self.digest = ""
        self.sizes: dict[Key, int] = {}
        self._blocks: dict[Key, list[Block]] = {}

    def chunks(self, parts: Iterable[tuple[Key, Iterable[Piece]]]) -> Iterator[bytes]:
        """Yield the file, piece by piece, reading each part's pieces to their end."""
        for key, pieces in parts:
            for modulus, residue, data in blocks(pieces):
                self._blocks.setdefault(key, []).append(Block(modulus, residue, self.size, len(data), digest(data)))
                self.sizes[key] = self.sizes.get(key, 0) + len(data)
                self.size += len(data)
                yield data
        table = [[*key, [list(attrs.astuple(block)) for block in found]] for key, found in self._blocks.items()]
        index = json.dumps(table).encode()
        trailer = _TRAILER.pack(self.size, len(index), _MAGIC)
        self.digest = digest(index)
        self.size += len(index) + len(trailer)
        yield index
        yield trailer


def blocks(pieces: Iterable[Piece]) -> Iterator[tuple[int, int, bytes]]:
    """Yield ``(modulus, residue, pickle)`` of pieces; those with one route stay in their order."""
    rest = iter(pieces)
    limit, each = 1, 0  # of the first piece nothing is known; it may be large
    while gathered := list(itertools.islice(rest, limit)):
        own = [item for route, item in gathered if route is None]
        written = 0
        if own:
            data = dumps(((), own))
            written += len(data)
            yield 0, 0, data
        size = each * (len(gathered) - len(own))
        for modulus, residue, data in _dealt(gathered, next((m for m in MODULI if size >= m * BLOCK), 1)):
            written += len(data)
            yield modulus, residue, data
        each = written // len(gathered) + 1
        limit = max(1, min(8 * limit, _MOST, GATHERED // each))


def _dealt(gathered: Iterable[Piece], modulus: int) -> Iterator[tuple[int, int, bytes]]:
    dealt: dict[int, tuple[list[int], list[Any]]] = {}
    for route, item in gathered:
        if route is not None:
            routes, items = dealt.setdefault(int(route) % modulus, ([], []))
            routes.append(int(route))
            items.append(item)
    for residue, found in dealt.items():
        yield modulus, residue, dumps(found)


class StateFile:
    """Reads one state file: ``open`` gives it, ``expected`` is the digest of its index. ``CheckpointError`` for damage."""

    def __init__(self, name: str, open: Callable[[], BinaryIO], size: int, expected: str) -> None:
        self.name = name
        self._open = open
        self._blocks: dict[Key, list[Block]] = {}
        try:
            self._read_index(size, expected)
        except OSError as error:
            raise CheckpointError(f"state file {name} cannot be read: {file_error_text(error)}") from error

    def _read_index(self, size: int, expected: str) -> None:
        with self._file() as file:
            if file.seek(0, 2) != size:
                raise self._damaged(f"it has {file.tell()} bytes where {size} were written")
            file.seek(size - _TRAILER.size)
            at, length, magic = _TRAILER.unpack(file.read(_TRAILER.size))
            if magic != _MAGIC or at + length + _TRAILER.size != size:
                raise self._damaged("its trailer is not what was written")
            file.seek(at)
            index = file.read(length)
            if digest(index) != expected:
                raise self._damaged("the digest of its index is not the one that the manifest has")
            for dataflow, path, part, found in json.loads(index):
                self._blocks[dataflow, path, part] = [Block(*block) for block in found]

    def _file(self) -> BinaryIO:
        try:
            return self._open()
        except OSError as error:
            raise CheckpointError(f"state file {self.name} cannot be opened: {file_error_text(error)}") from error

    def _damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"state file {self.name} is damaged: {why}")

    def check(self) -> None:
        """Read all of it, and compare all digests."""
        with self._file() as file:
            for found in self._blocks.values():
                for block in found:
                    self._read(file, block)

    def _read(self, file: BinaryIO, block: Block) -> bytes:
        try:
            file.seek(block.offset)
            data = file.read(block.length)
        except OSError as error:
            raise CheckpointError(f"state file {self.name} cannot be read: {file_error_text(error)}") from error
        if digest(data) != block.digest:
            raise self._damaged(f"the digest of the {block.length} bytes from {block.offset} is not the one that was noted")
        return data

    def has_own(self, key: Key) -> bool:
        """Return whether it has pieces of a part that were saved without a route."""
        return any(block.modulus == 0 for block in self._blocks.get(key, ()))

    def own(self, key: Key) -> Iterator[Any]:
        """Yield the items of a part that were saved without a route."""
        for _, (_, items) in self._contents(key, lambda block: block.modulus == 0):
            yield from items

    def routed(self, key: Key, index: int, peers: int) -> Iterator[Any]:
        """Yield the items of a part whose route belongs to worker ``index`` of ``peers``."""
        for block, (routes, items) in self._contents(key, lambda block: block.concerns(index, peers)):
            if block.modulus % peers == 0:
                yield from items  # all of them, as its residue says
            else:
                yield from (item for route, item in zip(routes, items) if route % peers == index)

    def _contents(self, key: Key, wanted: Callable[[Block], bool]) -> Iterator[tuple[Block, tuple[Sequence[int], Sequence[Any]]]]:
        chosen = [block for block in self._blocks.get(key, ()) if wanted(block)]
        if not chosen:
            return
        with self._file() as file:
            for block in chosen:
                yield block, pickle.loads(self._read(file, block))
