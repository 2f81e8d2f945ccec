"""Operators that do only what a test has told them, and what they hold: the true pointstamps of a nesting.

Each operator of a nesting has one ``Puppet`` on each worker. It keeps every capability it gets where the test can see it,
reads only as many messages as it was allowed, and sends only what it was told to send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.support.flat_graph import FlatGraph
from tests.support.nesting import Location, Nesting, Time, below, flat, nested
from tests.support.nesting_builder import build_nesting
from timely import Capability, InputPort, OperatorInfo, OutputPort, Source, Target, Worker


class Choices:
    """Makes the decisions of a run, drawn as they are needed."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def below(self, n: int) -> int:
        return self._data.draw(st.integers(0, n - 1))

    def among(self, things: list[Any]) -> Any:
        return things[self.below(len(things))]


class Puppet:
    """One operator on one worker."""

    def __init__(
        self, nesting: Nesting, op: int, inputs: list[InputPort[Any, Any]], info: OperatorInfo, choices: Choices
    ) -> None:
        self.spec = nesting.ops[op]
        self.op = op
        self.inputs = inputs
        self.info = info
        self.held: list[tuple[int, Capability[Any]]] = []
        self.to_send: list[tuple[int, Capability[Any], int]] = []
        self.to_read = [0] * len(inputs)
        self._choices = choices

    def logic(self, *ports: Any) -> None:
        outputs: list[OutputPort[Any]] = list(ports[len(self.inputs) :])
        for output, capability, count in self.to_send:
            with capability:
                outputs[output].session(capability).give_many([(0, 0)] * count)
        self.to_send.clear()
        for i, port in enumerate(self.inputs):
            if self.to_read[i]:
                for arrived, _ in port:
                    self._keep(i, arrived)
                    self.to_read[i] -= 1
                    if not self.to_read[i]:
                        break

    def _keep(self, i: int, arrived: Any) -> None:
        """Retain some of the capabilities that a message allows."""
        time = flat(arrived.time)
        for output, shifts in enumerate(self.spec.summaries[i]):
            for shift in shifts:
                result = shift.results_in(time)
                if result is not None and self._choices.below(2):
                    self.held.append((output, arrived.delayed(nested(self._later(result)), output)))

    def _later(self, time: Time) -> Time:
        """Return a time at or after one; coordinates that are no numbers are left as they are."""
        return tuple(t + self._choices.among([0, 0, 0, 1, 3]) if type(t) is int else t for t in time)

    def act(self) -> None:
        """Do one thing with one capability, or allow one input to be read; it shows after the next activations."""
        ready = [i for i, port in enumerate(self.inputs) if port.queue]
        if not self.held and not ready:
            return
        place = self._choices.below(len(self.held) + len(ready))
        if place >= len(self.held):
            self.to_read[ready[place - len(self.held)]] += 1 + self._choices.below(3)
        else:
            self._use(place)
        self.info.activator.activate()

    def _use(self, place: int) -> None:
        output, capability = self.held[place]
        deed = self._choices.below(4)
        if deed == 0:
            self.held.pop(place)
            capability.drop()
        elif deed == 1:
            capability.downgrade(nested(self._later(flat(capability.time))))
        elif deed == 2 and len(self.held) < 6:
            self.held.append((output, capability.delayed(nested(self._later(flat(capability.time))))))
        else:
            self.to_send.append((output, capability.copy(), 1 + self._choices.below(2)))

    def stamps(self) -> list[tuple[Location, Time]]:
        """Return the capabilities that are held, and the messages that have arrived and were not read."""
        collected: list[tuple[Location, Time]] = [(Source(self.op, o), flat(c.time)) for o, c in self.held]
        collected += [(Source(self.op, o), flat(c.time)) for o, c, _ in self.to_send]
        for i, port in enumerate(self.inputs):
            collected += [(Target(self.op, i), flat(message[0])) for message in port.queue]
        return collected

    def close(self) -> None:
        """Drop everything, and read all that comes."""
        for _, capability in self.held:
            capability.drop()
        self.held.clear()
        self.to_read = [-1] * len(self.inputs)
        self.info.activator.activate()


class Stage:
    """A nesting on one worker, with a puppet for each operator."""

    def __init__(self, nesting: Nesting, choices: Choices, *, sharing: bool) -> None:
        self.nesting = nesting
        self.graph = FlatGraph(nesting)
        self.worker = Worker()
        self.puppets: list[Puppet] = [None] * len(nesting.ops)  # type: ignore[list-item]  # filled in as they are built
        self._choices = choices
        build_nesting(nesting, self.worker, self._make, sharing=sharing)

    def _make(
        self, op: int, inputs: list[InputPort[Any, Any]], capabilities: list[Capability[Any]], info: OperatorInfo
    ) -> Callable[..., object]:
        puppet = self.puppets[op] = Puppet(self.nesting, op, inputs, info, self._choices)
        puppet.held.extend(enumerate(capabilities))
        return puppet.logic

    def shown(self) -> dict[Target, set[Time]]:
        """Return the frontiers that the operators which ask for them have been shown."""
        return {
            Target(puppet.op, i): {flat(time) for time in port.frontier}
            for puppet in self.puppets
            for i, port in enumerate(puppet.inputs)
            if puppet.spec.observes[i]
        }

    def true(self) -> dict[Target, set[Time]]:
        """Return the frontiers that the flat graph has at the same places."""
        frontiers = self.graph.frontiers(stamp for puppet in self.puppets for stamp in puppet.stamps())
        return {target: frontiers[target] for target in self.shown()}

    def settle(self) -> None:
        """Step until nothing moves any more; messages that are left unread keep their operators active."""
        quiet, before = 0, self.shown()
        while quiet < 6 + 2 * len(self.nesting.scopes) and not self.worker.idle:
            self.worker.step()
            for target, times in self.true().items():
                assert all(any(below(seen, time) for seen in self.shown()[target]) for time in times), "shown too much"
            quiet = quiet + 1 if self.shown() == before else 0
            before = self.shown()
