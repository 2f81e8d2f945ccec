"""``Hosts``: the machines of a run, each with one process, and the connections between their workers over mutual TLS.

Each process listens on its host's port, dials the hosts before its own, and admits those after it. Invariant: a connection
counts once both ends have proved that they hold the run's credentials, and have compared their ``RunSettings``.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import ssl
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from timely.errors import AuthenticationError, ConfigurationError, PeerLostError, file_error_text
from timely.worker.credentials import Identity, listener, read_credentials, speaker
from timely.worker.mesh import RUN, Address, Hello, Reception, connected, dial, open_listener, read_exactly, refuse, welcome

_ATTEMPT: Final = 5.0
"""Seconds for one attempt to reach a host, and for the settings of one that has connected."""
_PAUSE: Final = 0.1
_SIZE: Final = struct.Struct("!I")


@attrs.frozen
class Hosts:
    """The hosts of a run by their names and addresses, which of them this process is, and what it needs to connect."""

    names: tuple[str, ...]
    addresses: tuple[Address, ...]
    index: int
    identity: Identity
    patience: float

    @classmethod
    def given(
        cls,
        hosts: Sequence[str] | str | os.PathLike[str],
        index: int | None,
        credentials: str | os.PathLike[str] | None,
        patience: float,
    ) -> Hosts:
        """Return the hosts that arguments of ``execute`` name. ``ConfigurationError`` for arguments that are not valid."""
        names = _names(hosts)
        addresses = tuple(map(_address, names))
        if not names or len(set(addresses)) < len(names):
            raise ConfigurationError(f"hosts={names}: give each host of the run once, as 'host:port'")
        if not isinstance(index, int) or not 0 <= index < len(names):
            raise ConfigurationError(
                f"index={index!r}: give each host's process its place among the {len(names)} hosts, from 0 (index=, or"
                " TIMELY_INDEX in the environment)"
            )
        if not credentials:
            raise ConfigurationError(
                "hosts without credentials: make a file by timely credentials FILE, copy it to every host, and give"
                " credentials=FILE, or TIMELY_CREDENTIALS in the environment"
            )
        if not patience > 0:
            raise ConfigurationError(f"patience={patience!r}: give the seconds to wait for the other hosts")
        return cls(tuple(names), addresses, index, read_credentials(os.fspath(credentials)), patience)

    def title(self, index: int) -> str:
        """Return how errors name a host."""
        return f"host {index} ({self.names[index]})" if 0 <= index < len(self.names) else f"host {index}"

    def connect(self, workers: int, progress: str) -> dict[int, dict[int, socket.socket]]:
        """Return a socket for every worker of this host and every one of another, by worker and peer.

        ``PeerLostError`` for hosts that do not answer in time, ``AuthenticationError`` for one with other credentials,
        ``ConfigurationError`` for one with other ``RunSettings``, or a port on which this process cannot listen.
        """
        version = str(getattr(sys.modules["timely"], "__version__", ""))  # the package stands above this one
        python = "{}.{}".format(*sys.version_info)
        return _Connector(self, RunSettings(self.index, len(self.names), workers, progress, version, python)).run()


def _names(hosts: Sequence[str] | str | os.PathLike[str]) -> list[str]:
    """Return the ``host:port`` of each host; a text with a colon is a list with commas, another one a file."""
    if isinstance(hosts, str) and ":" in hosts:
        return [name.strip() for name in hosts.split(",")]
    if not isinstance(hosts, str | os.PathLike):
        return list(hosts)
    try:
        lines = Path(hosts).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"hosts={os.fspath(hosts)!r} is no file with one 'host:port' on each line: {error}") from error
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def _address(name: str) -> Address:
    host, _, port = str(name).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigurationError(f"{name!r} is no host of a run: give it as 'host:port', with a port from 1 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


@attrs.frozen
class RunSettings:
    """What the processes of a run have in common, and the ``index`` that each has."""

    index: int
    hosts: int
    workers: int
    progress: str
    timely: str
    python: str


@attrs.define(eq=False)
class _Connector:
    """Connects the workers of one host with those of the others."""

    hosts: Hosts
    own: RunSettings
    sockets: dict[int, dict[int, socket.socket]] = attrs.field(factory=dict)
    """By worker and peer, as far as they are connected."""
    deadline: float = 0.0
    reasons: dict[int, str] = attrs.field(factory=dict)
    """Why the last attempt to dial a host failed."""

    @property
    def name(self) -> str:
        """How errors name this host."""
        return self.hosts.title(self.own.index)

    def run(self) -> dict[int, dict[int, socket.socket]]:
        """Dial and admit until every worker is connected with every other."""
        first = self.own.index * self.own.workers
        self.sockets = {worker: {} for worker in range(first, first + self.own.workers)}
        self.deadline = time.monotonic() + self.hosts.patience
        identity = self.hosts.identity
        try:
            with self._listener() as sock, selectors.DefaultSelector() as selector:
                accepting, dialling = (make(identity, identity.certificate) for make in (listener, speaker))
                reception = Reception(selector, sock, lambda run: accepting if run == bytes(RUN) else None, self._admit)
                try:
                    while missing := self._missing():
                        self._dial(dialling, [pair for pair in missing if pair[1] < first])
                        reception.serve(_PAUSE)
                        if time.monotonic() >= self.deadline and (missing := self._missing()):
                            raise self._unanswered(missing)
                finally:
                    reception.close()
        except BaseException:
            for mine in self.sockets.values():
                for each in mine.values():
                    each.close()
            raise
        return self.sockets

    def _listener(self) -> socket.socket:
        index = self.own.index
        try:
            return open_listener(*self.hosts.addresses[index])  # the last host too: so a wrong index shows
        except OSError as error:
            raise ConfigurationError(
                f"{self.name}: this process cannot listen there, {file_error_text(error)}. Check index={index}, and whether"
                " another process uses the port"
            ) from error

    def _missing(self) -> list[tuple[int, int]]:
        """Return the pairs of a worker here and one elsewhere that are not connected."""
        peers = range(self.own.hosts * self.own.workers)
        others = [peer for peer in peers if peer not in self.sockets]
        return [(worker, peer) for worker, mine in self.sockets.items() for peer in others if peer not in mine]

    def _dial(self, context: ssl.SSLContext, pairs: Sequence[tuple[int, int]]) -> None:
        """Try to connect pairs; one that fails leaves the others of its host for the next time."""
        failed: set[int] = set()
        for worker, peer in pairs:
            index = peer // self.own.workers
            if index in failed:
                continue
            until = min(self.deadline, time.monotonic() + _ATTEMPT)
            try:
                with contextlib.ExitStack() as stack:
                    hello = Hello(bytes(RUN), 0, worker, peer)
                    sock = stack.enter_context(dial(self.hosts.addresses[index], context, hello, until))
                    self._compare(sock, index)
                    stack.pop_all()  # it is to stay open
                self.sockets[worker][peer] = sock
            except AuthenticationError as error:
                raise AuthenticationError(
                    f"{self.name} and {self.hosts.title(index)} do not trust each other, {error}: copy one credentials file to"
                    " all hosts"
                ) from error
            except OSError as error:
                failed.add(index)
                self.reasons[index] = file_error_text(error)

    def _admit(self, sock: ssl.SSLSocket, hello: Hello) -> None:
        """Admit a worker of a host after this one; it may dial again if it gave up waiting for this one."""
        try:
            if not welcome(sock):
                return
            connected(sock)
            self._compare(sock, hello.sender // self.own.workers)
            if hello.receiver not in self.sockets:
                raise self._misplaced(f"wants worker {hello.receiver} here")
        except OSError as error:
            refuse(sock, str(error))
            return
        except BaseException:
            sock.close()
            raise
        if (former := self.sockets[hello.receiver].get(hello.sender)) is not None:
            former.close()
        self.sockets[hello.receiver][hello.sender] = sock

    def _compare(self, sock: ssl.SSLSocket, index: int) -> None:
        """Exchange settings with the process of host ``index``. ``ConfigurationError`` where they differ."""
        deadline = time.monotonic() + _ATTEMPT
        own = attrs.asdict(self.own)
        frame = json.dumps(own).encode()
        sock.sendall(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(read_exactly(sock, _SIZE.size, deadline))
        theirs: Mapping[str, Any] = json.loads(read_exactly(sock, size, deadline))
        sock.settimeout(None)  # as it was
        peer = theirs.get("index", -1)
        differing = [name for name in own if name != "index" and own[name] != theirs.get(name)]
        if differing:
            here, there = (", ".join(f"{name}={each.get(name)!r}" for name in differing) for each in (own, theirs))
            raise ConfigurationError(
                f"{self.name} has {here}, and {self.hosts.title(peer)} has {there}: start the same call, with the same versions,"
                " on all hosts"
            )
        if peer != index:
            raise self._misplaced(f"has index={peer}, and should have {index}")

    def _misplaced(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"a process that is connected with {self.name} {what}: give all hosts the same list, and each its own index"
        )

    def _unanswered(self, missing: Sequence[tuple[int, int]]) -> PeerLostError:
        """Return the error about the hosts that are not connected."""
        silent = []
        for index in sorted({peer // self.own.workers for _, peer in missing}):
            silent.append(f"{self.hosts.title(index)} {self.reasons.get(index, 'has not connected')}")
        return PeerLostError(
            f"{self.name} waited {self.hosts.patience:g} s in vain for {'; '.join(silent)}. Start the same program there, and see"
            " that this machine can reach that port"
        )
