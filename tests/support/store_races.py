"""A store in memory whose every step is a decision: what runs that share it may do to each other is tried, not hoped for.

The real code of a run is a coroutine, and stands still before each step at the store. :func:`explore_stores` takes
every decision once for each state; :func:`sample_stores` takes random ones. The invariant: between two decisions no run is
under way, so that a state is the files, and what each run has seen of them.

White box: names of runs are random, and which is greater decides who takes over.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import BinaryIO, Final, TypeAlias

import attrs

from timely.recovery.ownership import Chance, chance
from timely.recovery.store import PARTIAL
from timely.testing.simulator import Coroutine, CoroutineExit


@attrs.frozen
class Guarantees:
    """What a kind of store promises.

    ``renames``: a file is written under a temporary name, which others see, and renamed. ``late``: a write whose response was
    lost may happen later. ``whole_lists``: a listing is of one moment; otherwise it may miss what changes meanwhile.
    """

    name: str
    renames: bool
    late: bool
    whole_lists: bool = False


LOCAL_FILES: Final = Guarantees("local", renames=True, late=False)
"""A local file system: ``readdir`` may miss what changes meanwhile, and a failed write has not happened."""
OBJECTS: Final = Guarantees("objects", renames=False, late=True)
"""S3 and the like: an object appears at once, a page of a listing is of one moment, and a request may arrive late."""
HDFS: Final = Guarantees("hdfs", renames=True, late=True)
"""HDFS: files are renamed by a server, which may do so after the client has given up; listings come in pages."""

Decision: TypeAlias = tuple[int, str]
"""The run that goes on, or -1 for a late write that arrives, and how its step ends."""


LISTS: Final = ("now", "least", "most")
"""What a listing gives: the names at its end, those that were there throughout, or all that were there at any time."""


class _Run:
    """One run: a coroutine, which takes its next step on request."""

    def __init__(self, index: int, program: Callable[[SimulatedStore], None], race: StoreRace) -> None:
        self.store = SimulatedStore(race, index)
        self.choices: tuple[str, ...] = ()
        self.choice = ""
        self.seen: Hashable = ()
        self.next = ""
        self.failure: BaseException | None = None
        self.tokens = self.pauses = 0
        self.free = False
        self.coroutine = Coroutine(lambda: self._work(program, race), f"run-{index}")

    def _work(self, program: Callable[[SimulatedStore], None], race: StoreRace) -> None:
        chance.set(Chance(lambda: race.token(self.store.index), lambda patience: race.pause(self.store.index)))
        try:
            program(self.store)
        except CoroutineExit:
            pass
        except BaseException as error:
            self.failure = error
        self.choices = ()


class StoreRace:
    """Runs that share the files of one store, each of which goes on when :meth:`step` says so.

    ``programs`` get the store of their run. ``faults`` is how many writes may fail, ``retries`` how often a run may wait for
    others before it gives up, and ``ranks`` whose names are greater where runs start at once.

    >>> def program(store):
    ...     store.write("greeting", [b"hello"])
    >>> with StoreRace([program], {}, OBJECTS) as race:
    ...     race.step((0, "ok"))
    ...     race.files, race.ended(0)
    ({'greeting': b'hello'}, True)
    """

    def __init__(
        self,
        programs: Sequence[Callable[[SimulatedStore], None]],
        files: Mapping[str, bytes],
        guarantees: Guarantees,
        *,
        faults: int = 0,
        retries: int = 1,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.files = dict(files)
        self.guarantees = guarantees
        self.faults = faults
        self.retries = retries
        self.late: list[tuple[str, bytes]] = []
        self.deleted: list[str] = []
        self._ranks = list(range(len(programs))) if ranks is None else ranks
        self._runs = [_Run(index, program, self) for index, program in enumerate(programs)]
        for run in self._runs:
            run.coroutine.resume()

    def decisions(self) -> list[Decision]:
        """Return what can happen next."""
        choices = [(run.store.index, choice) for run in self._runs for choice in self._choices(run)]
        return choices + [(-1, name) for name, _ in self.late]

    def _choices(self, run: _Run) -> tuple[str, ...]:
        if run.choices == LISTS:
            return tuple({names: how for how, names in reversed(run.store.listings().items())}.values())
        return run.choices if self.faults else tuple(choice for choice in run.choices if not choice.startswith("fail"))

    def step(self, decision: Decision) -> None:
        """Take one step."""
        index, choice = decision
        assert decision in self.decisions()
        if index < 0:
            place = next(number for number, (name, _) in enumerate(self.late) if name == choice)
            name, data = self.late.pop(place)
            self.put(name, data)
            return
        run = self._runs[index]
        run.choice = choice
        self.faults -= choice.startswith("fail")
        run.coroutine.resume()

    def advance(self, index: int, before: str = "") -> None:
        """Step one run until its next step matches ``before``, a pattern such as ``"write *.claim"``; by default to its end."""
        while self._runs[index].choices and not (before and fnmatch.fnmatch(self._runs[index].next, before)):
            self.step((index, self._choices(self._runs[index])[0]))

    def state(self) -> Hashable:
        """Return what the future depends on: the files, and what each run has seen."""
        runs = tuple((run.coroutine.ended, run.seen, run.store.listing()) for run in self._runs)
        return frozenset(self.files.items()), tuple(self.late), self.faults, runs

    def failures(self) -> list[BaseException]:
        """Return what runs have raised."""
        return [run.failure for run in self._runs if run.failure is not None]

    def ended(self, index: int) -> bool:
        """Whether a run has come to its end, or has raised."""
        return self._runs[index].coroutine.ended

    def close(self) -> None:
        """Kill all runs."""
        for run in self._runs:
            run.coroutine.close()

    def __enter__(self) -> StoreRace:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # -- called in the threads of runs ---------------------------------------------------------------------------------

    def turn(self, index: int, what: str, choices: tuple[str, ...] = ("ok",)) -> str:
        """Wait for the decision that the run goes on with a step; return how it ends."""
        run = self._runs[index]
        if run.free:
            return choices[0]
        run.choices, run.next = choices, what
        run.coroutine.pause()
        return run.choice

    def see(self, index: int, what: Hashable) -> None:
        """Note what a run has learnt."""
        run = self._runs[index]
        run.seen = hash((run.seen, what))

    def token(self, index: int) -> str:
        """Return the random part of a name: greater for runs of a greater rank, and for later attempts."""
        run = self._runs[index]
        run.tokens += 1
        return f"{self._ranks[index]:04x}{run.tokens:04x}"

    def pause(self, index: int) -> None:
        """Give up where others keep a run from starting."""
        run = self._runs[index]
        run.pauses += 1
        if run.pauses > self.retries:
            raise CoroutineExit

    def put(self, name: str, data: bytes) -> None:
        """Make a file appear."""
        self.files[name] = data
        for run in self._runs:
            run.store.note_change(name, present=True)

    def remove(self, name: str) -> None:
        """Delete a file."""
        if self.files.pop(name, None) is not None:
            for run in self._runs:
                run.store.note_change(name, present=False)


class SimulatedStore:
    """The store as one run sees it: a ``timely.recovery.Store``."""

    def __init__(self, race: StoreRace, index: int) -> None:
        self._race = race
        self.index = index
        self._stable: set[str] | None = None
        self._seen: set[str] = set()

    def __repr__(self) -> str:
        return f"SimulatedStore({self._race.guarantees.name})"

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Take all steps in the block at once: what a run has done before the race begins."""
        run = self._race._runs[self.index]
        run.free = True
        try:
            yield
        finally:
            run.free = False

    def listing(self) -> Hashable:
        """Return what a listing that is under way has seen so far."""
        return None if self._stable is None else (frozenset(self._stable), frozenset(self._seen))

    def listings(self) -> dict[str, frozenset[str]]:
        """Return what a listing that is under way may give."""
        stable = frozenset(self._stable or ())
        return dict(zip(LISTS, (frozenset(self._race.files), stable, frozenset(self._seen)), strict=True))

    def note_change(self, name: str, *, present: bool) -> None:
        """Note a change during a listing."""
        if self._stable is not None:
            if present:
                self._seen.add(name)
            else:
                self._stable.discard(name)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file: two steps where it is renamed, one elsewhere."""
        race, kind = self._race, self._race.guarantees
        failures = ("fail", "fail after", *(("fail, late",) if kind.late else ()))
        if kind.renames:
            race.turn(self.index, f"draft {name}")
            race.put(name + PARTIAL, b"")
            data = b"".join(chunks)
            choice = race.turn(self.index, f"write {name}", ("ok", *failures))
            if name + PARTIAL not in race.files:
                race.see(self.index, ("lost", name))
                raise FileNotFoundError(errno.ENOENT, "its draft is gone", name)
            race.remove(name + PARTIAL)
        else:
            data = b"".join(chunks)
            choice = race.turn(self.index, f"write {name}", ("ok", *failures))
        race.see(self.index, (choice, name))
        if choice in ("ok", "fail after"):
            race.put(name, data)
        elif choice == "fail, late":
            race.late.append((name, data))
        if choice != "ok":
            raise TimeoutError(f"no response for {name}")

    def open(self, name: str) -> BinaryIO:
        """Open a file, which is read at once."""
        self._race.turn(self.index, f"open {name}")
        data = self._race.files.get(name)
        self._race.see(self.index, ("open", name, data))
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return io.BytesIO(data)

    def names(self) -> list[str]:
        """List the names: it begins with one step and ends with another, unless it is of one moment."""
        race = self._race
        race.turn(self.index, "list")
        listed: Iterable[str] = frozenset(race.files)
        if not race.guarantees.whole_lists:
            self._stable, self._seen = set(race.files), set(race.files)
            how = race.turn(self.index, "end list", LISTS)
            listed = self.listings()[how]
            self._stable, self._seen = None, set()
        race.see(self.index, ("names", listed))
        return sorted(listed)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._race.turn(self.index, f"delete {name}")
        self._race.remove(name)
        self._race.see(self.index, ("delete", name))


def explore_stores(make: Callable[[], StoreRace], check: Callable[[StoreRace], object], *, most: int = 100_000) -> int:
    """Take every decision of a race once for each state, and ``check`` each state; return their number, at most ``most``.

    What ``check`` raises has the decisions as a note.

    >>> def program(store):
    ...     store.write(f"greeting {store.index}", [b"hello"])
    >>> explore_stores(lambda: StoreRace([program, program], {}, OBJECTS), lambda race: None)
    4
    """
    known: set[Hashable] = set()
    ways: list[tuple[Decision, ...]] = [()]
    while ways:
        decisions = ways.pop()
        with make() as race:
            for decision in decisions:
                race.step(decision)
            while True:
                state = race.state()
                if state in known:
                    break
                known.add(state)
                assert len(known) <= most, "give the race fewer or shorter runs"
                with _noted(decisions):
                    check(race)
                choices = race.decisions()
                if not choices:
                    break
                ways += [(*decisions, choice) for choice in choices[1:]]
                decisions = (*decisions, choices[0])
                race.step(choices[0])
    return len(known)


def sample_stores(make: Callable[[Random], StoreRace], check: Callable[[StoreRace], object], *, seed: int, races: int) -> int:
    """Run races with random decisions, for more runs than can be explored; ``check`` each state, and return their number.

    The run of the highest priority goes on, and a few times it becomes the lowest: faults that need few switches are found soon
    (Burckhardt and others, 2010).
    """
    random, states, length = Random(seed), set(), 50
    for _ in range(races):
        decisions: tuple[Decision, ...] = ()
        with make(random) as race:
            order: list[int] = []
            switches = {random.randrange(length) for _ in range(random.randrange(2, 7))}
            while choices := race.decisions():
                states.add(race.state())
                present = {choice[0] for choice in choices}
                for index in sorted(present.difference(order)):
                    order.insert(random.randrange(len(order) + 1), index)
                first = next(index for index in order if index in present)
                decision = random.choice([choice for choice in choices if choice[0] == first])
                if len(decisions) in switches:
                    order.remove(first)
                    order.append(first)
                decisions += (decision,)
                race.step(decision)
                with _noted(decisions):
                    check(race)
            states.add(race.state())
            length = max(length, len(decisions))
    return len(states)


@contextlib.contextmanager
def _noted(decisions: Sequence[Decision]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"after the decisions {list(decisions)}")
        raise
