"""State files: one worker's operator state, in blocks by key, with an index at the end.

A block is one pickle of ``(routes, items)`` of one state part. Its routes agree modulo a number that many worker counts divide,
so that any number of workers can skip most blocks of others. Items without a route are in blocks with modulus 0. The manifest
holds the digest of the index, the index those of the blocks, and nothing is unpickled before its digest was verified. Digests
find damage, not malice: whoever can write to the store can run code in the workers. Memory holds some blocks, never all state.
A block that an earlier file has already is not written again: the index says where it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import pickle
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, TypeAlias

import attrs

from timely.dataflow.containers.pickling import dumps
from timely.dataflow.info import Piece
from timely.errors import CheckpointError, error_text, file_error_text

MODULI: Final = (240, 60, 12)
"""Moduli of blocks, for much state first: 1 to 6, 8, 10, 12, 15, 16, 20 and 24 divide 240."""
BLOCK: Final = 1 << 15
"""Approximate bytes that each block must have before a greater modulus is used."""
BUFFERED: Final = 1 << 24
"""Approximate bytes of items that are buffered before they are written."""

_MAGIC: Final = b"timely-2"
_TRAILER: Final = struct.Struct(">QQ8s")
_ITEM_LIMIT: Final = 1 << 17

MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, RecursionError, struct.error)
"""What reading a file raises that somebody else has made up, digests and all."""

Key: TypeAlias = tuple[int, str, int]
"""A state part: the number of its recoverable dataflow, the operator's path, the number of the part."""


def digest(data: bytes | bytearray | memoryview) -> str:
    """Return a hexadecimal digest of some bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _block_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


@attrs.frozen
class Block:
    """The position and digest of one block; its routes have this ``residue``, or modulus 0 says that it has none.

    ``file`` has it: the state file with this name.
    """

    modulus: int
    residue: int
    offset: int
    length: int
    digest: str
    file: str
    items: int

    def concerns(self, index: int, peers: int) -> bool:
        """Return whether the block may hold items of worker ``index`` of ``peers``."""
        return self.modulus > 0 and (self.residue - index) % math.gcd(self.modulus, peers) == 0


Known: TypeAlias = dict[Key, dict[str, Block]]
"""Blocks of state parts by their digests."""


class StateWriter:
    """Produces one state file as ``chunks``; afterwards ``size``, ``digest`` and the ``sizes`` of the parts are known.

    Blocks that are ``known`` are not written again.
    """

    def __init__(self, name: str, known: Known | None = None) -> None:
        self.name = name
        self.size = 0
        self.digest = ""
        self.sizes: dict[Key, int] = {}
        self._known = known or {}
        self._blocks: dict[Key, list[Block]] = {}

    def chunks(self, parts: Iterable[tuple[Key, Iterable[Piece]]]) -> Iterator[bytes]:
        """Yield the content of the file; reads each part's items to their end."""
        for key, items in parts:
            known = self._known.get(key, {})
            for modulus, residue, count, data in blocks(items):
                self.sizes[key] = self.sizes.get(key, 0) + len(data)
                own_digest = _block_digest(data)
                block = Block(modulus, residue, self.size, len(data), own_digest, self.name, count)
                before = known.get(own_digest)
                if before is not None and (before.modulus, before.residue) == (modulus, residue):
                    block = before
                self._blocks.setdefault(key, []).append(block)
                if block is not before:
                    self.size += len(data)
                    yield data
        table = [[*key, [list(attrs.astuple(block)) for block in blocks]] for key, blocks in self._blocks.items()]
        index = json.dumps(table).encode()
        trailer = _TRAILER.pack(self.size, len(index), _MAGIC)
        self.digest = digest(index)
        self.size += len(index) + len(trailer)
        yield index
        yield trailer

    @property
    def files(self) -> set[str]:
        """The names of the files that have the blocks, its own included."""
        return {self.name, *(block.file for blocks in self._blocks.values() for block in blocks)}

    def known(self, keys: Iterable[Key]) -> Known:
        """Return the blocks of some parts."""
        return {key: {block.digest: block for block in self._blocks.get(key, ())} for key in keys}


def blocks(items: Iterable[Piece]) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield ``(modulus, residue, count, pickle)`` of routed items; those of one route stay in order."""
    rest = iter(items)
    limit, each = 1, 0  # the size of the first item is unknown, and may be large
    while buffered := list(itertools.islice(rest, limit)):
        own = [item for route, item in buffered if route is None]
        written = 0
        if own:
            data = dumps(((), own))
            written += len(data)
            yield 0, 0, len(own), data
        size = each * (len(buffered) - len(own))
        modulus = next((m for m in MODULI if size >= m * BLOCK), 1)
        for residue, count, data in _partition(buffered, modulus):
            written += len(data)
            yield modulus, residue, count, data
        each = written // len(buffered) + 1
        limit = max(1, min(8 * limit, _ITEM_LIMIT, BUFFERED // each))
        limit = 1 << limit.bit_length() - 1  # so that items which grow a little leave the blocks of others as they were


def _partition(items: Iterable[Piece], modulus: int) -> Iterator[tuple[int, int, bytes]]:
    parts: dict[int, tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
    for route, item in items:
        if route is not None:
            route = int(route)
            routes, routed = parts[route % modulus]
            routes.append(route)
            routed.append(item)
    for residue, part in parts.items():
        yield residue, len(part[1]), dumps(part)


class StateFile:
    """Reads one state file, and what it refers to; ``expected`` is the digest of its index. ``CheckpointError`` for damage."""

    def __init__(self, name: str, open: Callable[[str], BinaryIO], size: int, expected: str) -> None:
        self.name = name
        self._open = open
        self._blocks: dict[Key, list[Block]] = {}
        try:
            self._read_index(size, expected)
        except MALFORMED as error:
            raise self._damaged(error_text(error)) from error
        except OSError as error:
            raise CheckpointError(f"state file {name} cannot be read: {file_error_text(error)}") from error

    def _read_index(self, size: int, expected: str) -> None:
        with self._file(self.name) as file:
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
            for dataflow, path, part, blocks in json.loads(index):
                self._blocks[dataflow, path, part] = [Block(*block) for block in blocks]
                for block in self._blocks[dataflow, path, part]:
                    whole = all(type(each) is int and each >= 0 for each in (block.offset, block.length, block.items))
                    if not whole or (block.file == self.name and block.offset + block.length > at):
                        raise self._damaged("its index has a block that is not in it")

    def _file(self, name: str) -> BinaryIO:
        try:
            return self._open(name)
        except OSError as error:
            raise CheckpointError(f"state file {name} cannot be opened: {file_error_text(error)}") from error

    def _damaged(self, why: str) -> CheckpointError:
        return CheckpointError(f"state file {self.name} is damaged: {why}")

    def check(self) -> None:
        """Read the whole file and verify all digests, but not what it refers to."""
        with self._file(self.name) as file:
            for blocks in self._blocks.values():
                for block in blocks:
                    if block.file == self.name:
                        self._read(file, block)

    def _read(self, file: BinaryIO, block: Block) -> bytes:
        try:
            file.seek(block.offset)
            data = file.read(block.length)
        except OSError as error:
            raise CheckpointError(f"state file {block.file} cannot be read: {file_error_text(error)}") from error
        if _block_digest(data) != block.digest:
            where = "" if block.file == self.name else f" of {block.file}"
            raise self._damaged(
                f"the digest of the {block.length} bytes from {block.offset}{where} is not the one that was noted"
            )
        return data

    def count(self, key: Key) -> int:
        """Return how many items a part has."""
        return sum(block.items for block in self._blocks.get(key, ()))

    def has_own(self, key: Key) -> bool:
        """Return whether a part has items without a route."""
        return any(block.modulus == 0 for block in self._blocks.get(key, ()))

    def own(self, key: Key) -> Iterator[Any]:
        """Yield the items of a part without a route."""
        for _, _, items in self._read_blocks(key, lambda block: block.modulus == 0):
            yield from items

    def routed(self, key: Key, index: int, peers: int) -> Iterator[Any]:
        """Yield the items of a part whose route belongs to worker ``index`` of ``peers``."""
        for block, routes, items in self._read_blocks(key, lambda block: block.concerns(index, peers)):
            if block.modulus % peers == 0:
                yield from items  # the residue alone decides
            else:
                yield from (item for route, item in zip(routes, items) if route % peers == index)

    def _read_blocks(self, key: Key, wanted: Callable[[Block], bool]) -> Iterator[tuple[Block, Sequence[int], Sequence[Any]]]:
        chosen = [block for block in self._blocks.get(key, ()) if wanted(block)]
        if not chosen:
            return
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(self._file(name)) for name in {block.file for block in chosen}}
            for block in chosen:
                routes, items = pickle.loads(self._read(files[block.file], block))
                yield block, routes, items
