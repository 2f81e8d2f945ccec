"""Input handles: what is sent between steps keeps its time and its place, and no frontier passes it before it is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import timely

DEEDS = st.sampled_from(["send", "send", "batch", "advance", "stay", "flush", "step", "feed", "drop"])


class Fed:
    """A dataflow that reads what a handle sends: what it must get, and what it has got."""

    def __init__(self, scope: timely.ScopeBuilder[int], stream: timely.Stream[int, int]) -> None:
        self.scope = scope
        self.expected: list[tuple[int, int]] = []
        self._seen = stream.capture()
        self._probe = stream.probe()

    def check(self) -> None:
        """What has come is the beginning of what was sent, and what is missing may still come."""
        found = self.found()
        assert found == self.expected[: len(found)]
        assert all(self._probe.less_equal(time) for time, _ in self.expected[len(found) :])

    def found(self) -> list[tuple[int, int]]:
        """The records that have come, with their times."""
        return [(time, record) for time, batch in self._seen.messages for record in batch]


@given(st.lists(DEEDS, max_size=25))
def test_each_dataflow_gets_what_is_sent_while_it_is_fed(deeds: list[str]) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        fed = [Fed(scope, stream)]
    dropped: list[Fed] = []
    for number, deed in enumerate(deeds):
        sent: list[int] = []
        match deed:
            case "send":
                sent = [number]
                handle.send(number)
            case "batch":
                sent = [number, -number]
                handle.send_batch(sent)
            case "advance" | "stay":
                handle.advance_to(handle.time + (deed == "advance"))
            case "flush":
                handle.flush()
            case "step":
                worker.step()
            case "feed":
                with worker.dataflow(int) as scope:
                    fed.append(Fed(scope, scope.input_from(handle)))
            case "drop" if fed:
                dropped.append(fed.pop(0))
                worker.drop_dataflow(dropped[-1].scope)
        for each in fed:
            each.expected += [(handle.time, record) for record in sent]
            each.check()
    handle.close()
    worker.run()
    assert all(each.found() == each.expected for each in fed)
    assert all(each.found() == each.expected[: len(each.found())] for each in dropped)
