"""``Turning``: what a worker does in one turn, and with each message of a peer.

A turn takes in what peers have sent, runs every dataflow that has something to do, and sends the peers what this worker's
operators did, one atomic batch for each dataflow. The invariant: a peer hears what was produced no later than what was made of
it, because everything a dataflow's scopes say leaves in one stream, in order.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final, cast

from timely.dataflow import SyncActivator
from timely.dataflow.operator_state import StateRegistry
from timely.errors import ConfigurationError, PeerLostError, RoutingError, UnsendableError, WorkerError, error_text
from timely.native import mypyc_attr
from timely.progress import ActivationQueue, ProgressAggregator, ProgressBatch, ProgressExchange, ProgressGroups
from timely.worker.all_gather import AllGather
from timely.worker.config import Config
from timely.worker.dataflows import LONG, InstalledDataflow, Pointstamp
from timely.worker.gc_control import GarbageControl
from timely.worker.graph_check import GraphCheck
from timely.worker.progress_batching import DATA, PROGRESS
from timely.worker.scheduler import Scheduler
from timely.worker.silence import warn_of_the_same
from timely.worker.stall import StallDetector
from timely.worker.timers import Timers
from timely.worker.tracer import Tracer
from timely.worker.transport import LocalTransport, Transport

GRAPH: Final = "graph"
ABORT: Final = "abort"
CONFER: Final = "confer"
DONE: Final = "done"
QUIET: Final = "quiet"
HELD: Final = "held"
MARK: Final = "mark"
SERVING: Final = "serving"
ENDED: Final = "ended"


@mypyc_attr(allow_interpreted_subclasses=True)
class Turning:
    """A worker as far as its turns go; ``timely.Worker`` says what its attributes are for."""

    def __init__(
        self,
        transport: Transport | None = None,
        scheduler: Scheduler | None = None,
        clock: Callable[[], float] = monotonic,
        *,
        routes: ProgressGroups | None = None,
    ) -> None:
        self.transport: Transport = LocalTransport() if transport is None else transport
        self.index = self.transport.index
        self.peers = self.transport.peers
        self._alone = self.peers == 1
        self._paused = False
        self.scheduler = scheduler
        self.config = Config()
        self.state_registries: Callable[[int], StateRegistry] | None = None
        self.timers = Timers(clock)
        self._clock = clock
        self.tracers: list[Tracer] = []
        self._stall = StallDetector(self.index, self.peers)
        self._dataflows: dict[int, InstalledDataflow] = {}
        self._agenda = ActivationQueue()  # of the dataflows, by number
        self._rung: deque[SyncActivator] = deque()
        self._early: dict[int, list[tuple[int, Any]]] = {}
        self._agreement = GraphCheck(self.index, self.peers)
        self._council = AllGather(self.index, self.peers)
        self._serving = False
        groups = ProgressGroups.direct(self.peers) if routes is None else routes
        if groups.workers != self.peers:
            raise ConfigurationError(f"{self.peers} workers cannot have progress groups of {groups.workers}: make new ones")
        self._aggregator = ProgressAggregator(self.index, groups)
        self.collector: GarbageControl | None = None
        self._failed: BaseException | None = None
        self._stepping = False

    @property
    def scheduler(self) -> Scheduler | None:
        """What chooses the dataflows that run in a step, and waits; without any, all that are active run. It may be replaced."""
        return self._scheduler

    @scheduler.setter
    def scheduler(self, scheduler: Scheduler | None) -> None:
        self._scheduler = scheduler
        self._plain = self._alone and scheduler is None and not self._paused

    @property
    def paused(self) -> bool:
        """While it is set, no dataflow runs: what arrives is taken in, and waits, and so does what is to be done later."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._plain = self._alone and self._scheduler is None and not paused

    def _begin_step(self) -> None:
        if self._failed is not None:
            raise self._has_failed()
        self._check_outside()
        if self.collector is not None:
            self.collector.between()
        self._stepping = True

    def _check_outside(self) -> None:
        """Raise ``WorkerError`` if an operator is running."""
        if self._stepping:
            raise WorkerError(
                f"worker {self.index} is stepped while one of its operators runs: an operator that waits for something returns,"
                " and is run again for input, for progress or by its activator"
            )

    def _has_failed(self) -> PeerLostError:
        error = PeerLostError(f"worker {self.index} has failed already: {self._failed}")
        error.__cause__ = self._failed
        return error

    def _turn(self) -> None:
        """Take in what has arrived, run what is active, and send what that led to."""
        for sender, message in self.transport.receive():
            self._take(sender, message)
        if self._rung:
            self._answer()
        if self.timers.entries and not self._paused:
            self.timers.run_due()
        agenda = self._agenda
        ready = [] if self._paused else sorted(agenda.ready)
        chosen = self._scheduler.choose(ready) if self._scheduler is not None and ready else ready
        if not self._alone:
            self._speak_first(chosen)
        for number in chosen:
            agenda.remove(number)
            dataflow = self._dataflows.get(number)
            if dataflow is not None:
                begun = self._clock()
                alive = dataflow.root.pull_internal_progress((), (), ())
                dataflow.longest = max(dataflow.longest, self._clock() - begun)
                self._send_progress(dataflow)
                if not alive:
                    self._forget(number)
                    self._aggregator.complete(number)
        self._send_aggregated()
        self._flush()
        for onlooker in self.tracers:
            onlooker.turned()

    def _pass(self) -> None:
        """What a turn comes to without peers and without a scheduler: run each active dataflow once, in order."""
        if self._rung:
            self._answer()
        if self.timers.entries:
            self.timers.run_due()
        agenda, dataflows = self._agenda, self._dataflows
        while agenda.ready:
            number = agenda.take()
            dataflow = dataflows.get(number)  # none: it is complete, dropped, or not finished
            if dataflow is not None and not dataflow.root.pull_internal_progress((), (), ()):
                self._forget(number)
        agenda.end_pass()
        for onlooker in self.tracers:
            onlooker.turned()

    def _speak_first(self, chosen: Iterable[int]) -> bool:
        """Send what was done since the last turn before anything runs, and return whether there was any.

        That an input has moved on is nothing that peers should have to wait for until an operator that takes long has run. Where
        turns are short it goes with what they do, in one batch.
        """
        said = False
        for number in chosen:
            dataflow = self._dataflows.get(number)
            if dataflow is not None and self._takes_long(dataflow) and self._send_progress(dataflow):
                dataflow.longest /= 2
                said = True
        if said:
            self._send_aggregated()
            self._flush()
        return said

    def _takes_long(self, dataflow: InstalledDataflow) -> bool:
        """Return whether a turn of a dataflow is likely to take longer than to tell all peers something."""
        return dataflow.longest >= LONG

    def _send_progress(self, dataflow: InstalledDataflow) -> bool:
        """Send the peers what this worker's operators sent, and what they did, as one batch; return whether there was any."""
        dataflow.mailbag.empty()
        batch = dataflow.exchange.flush() if dataflow.exchange is not None else None
        if batch is None:
            return False
        for onlooker in self.tracers:
            onlooker.told(dataflow.number, batch)
        self._aggregator.add(dataflow.number, batch)
        return True

    def _send_aggregated(self) -> None:
        """Send the progress of this worker, and what it forwards."""
        for members, number, batch in self._aggregator.flush():
            message = PROGRESS, number, batch
            for peer in members:
                self.tell(peer, message)
        for members, round in self._aggregator.marks():
            for peer in members:
                self.tell(peer, (MARK, round))

    def tell(self, peer: int, message: Any) -> None:
        """Send a peer a message that it may act on."""
        self._stall.sent(peer)
        self.transport.send(peer, message)

    def _flush(self) -> None:
        """Pass on to the peers what was sent."""
        try:
            self.transport.flush()
        except UnsendableError as error:
            raise RoutingError(f"{self._whereabouts(error.message)}: {error}").caused_by(error.__cause__)

    def _whereabouts(self, message: Any) -> str:
        """Return, for an error, what a message carries, and to where."""
        if message[0] == CONFER:
            return "a value for all workers to agree on"
        dataflow = self._dataflows.get(message[1])
        if message[0] == DATA and dataflow is not None:
            return f"exchange into {dataflow.labels[message[2]]}"
        return f"times of dataflow {message[1]}"

    def _forget(self, number: int) -> None:
        """Let go of a dataflow that is complete or dropped."""
        dataflow = self._dataflows.pop(number, None)
        if dataflow is not None:
            dataflow.end()
            dataflow.discard()
            self._agenda.remove(number)  # what is let go of may have asked to be run once more
            for onlooker in self.tracers:
                onlooker.ended(number)

    def receive_activation(self, bell: SyncActivator, /) -> None:
        """Have a bell answered in the next step, which need not wait: the one method that other threads may call."""
        self._rung.append(bell)
        self.transport.wake()

    def _answer(self) -> None:
        """Answer the bells that have been rung so far."""
        for _ in range(len(self._rung)):
            self._rung.popleft().deliver()

    # -- peers -----------------------------------------------------------------------------------------------------------

    def _take(self, sender: int, message: Any) -> None:
        """Act on one message of a peer."""
        kind = message[0]
        if kind == QUIET:
            self._stall.heard(sender, message[1])
            return
        if kind == HELD:
            self._stall.heard(sender, message[1], final=False)
            return
        if kind == SERVING:
            self._stall.serves(sender)
            return
        if kind == ENDED:
            self._stall.ended(sender)
            return
        self._stall.got(sender, message[2].count if kind == PROGRESS else 1)
        self._act(sender, message)

    def _act(self, sender: int, message: Any) -> None:
        """Act on a message that was counted, or keep it until the dataflow that it is for has been built."""
        kind = message[0]
        if kind == ABORT:
            who = f"worker {sender} failed, so worker {self.index} stops" if sender >= 0 else f"worker {self.index} stops"
            raise PeerLostError(f"{who}: {message[1]}")
        if kind == DONE:
            self._agreement.ended(sender, message[1])
            self._council.left(sender)
            for number, dataflow in self._dataflows.items():
                self._agreement.expect(number, dataflow.name)
            return
        if kind == CONFER:
            self._council.heard(sender, message[1], message[2])
            return
        if kind == MARK:
            self._aggregator.receive_mark(sender, message[1])
            return
        number = message[1]
        if not self._agreement.knows(number):
            self._early.setdefault(number, []).append((sender, message))
            return
        if kind == GRAPH:
            self._agreement.compare(number, sender, message[2])
            built = self._dataflows.get(number)
            if self.index == 0 and sender == 1 and built is not None:
                warn_of_the_same(built.scope, message[3])
            return
        if kind == PROGRESS:
            self._aggregator.receive(sender, number, message[2])
        target = self._dataflows.get(number)
        if target is None:
            return  # complete or dropped here: nothing in it matters any more
        if kind == DATA:
            target.channels[message[2]](message[3], message[4], len(message[4]))
        else:
            self._receive(target, message[2])

    def _receive(self, dataflow: InstalledDataflow, batch: ProgressBatch[Pointstamp]) -> None:
        """Apply a peer's batch as a whole, before anything is derived from it."""
        for onlooker in self.tracers:
            onlooker.heard(dataflow.number, batch.sender, batch)
        exchange = cast("ProgressExchange[Pointstamp]", dataflow.exchange)
        scopes = dataflow.scopes
        for (scope, location, time), diff in exchange.receive(batch):
            scopes[scope].receive(location, time, diff)

    def _tell_all(self, message: Any) -> None:
        """Send every peer a message that does not count as one to act on."""
        for peer in range(self.peers):
            if peer != self.index:
                self.transport.send(peer, message)
        self.transport.flush()

    def abort(self, error: BaseException) -> None:
        """Tell every peer that this worker has failed, so that they stop too."""
        if self._failed is None:
            self._failed = error
            try:
                with contextlib.suppress(RoutingError):
                    self.transport.flush()  # what cannot be sent is dropped with this, and is not in the way of the next
            finally:
                self._tell_all((ABORT, error_text(error)))
