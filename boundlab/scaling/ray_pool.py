"""Functions called in other processes by Ray, on this machine or on many; a call whose process or
machine dies is made again elsewhere."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from boundlab.errors import ArgumentError, BoundlabError
from boundlab.version import VERSION

AUTO, LOCAL = "auto", "local"
ATTEMPTS = 5
"""How often a call is made before it is given up: a node that dies takes its calls with it, and a
call that brings nodes down must end."""
LOOK_SECONDS = 0.5
"""Between two looks at an interruption while nothing ends."""
STARTS = 4
"""How often a local cluster is started before it is given up."""
STOP_SECONDS = 3.0
"""How long calls may take to stop when they are not wanted any more."""
QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Settings of Ray's own without which it warns at every start, or tells others that it is used."""


class WorkerLost(BoundlabError):
    """A call was lost with its process or machine, as often as it was made."""


class NodeTrouble(BoundlabError):
    """A machine cannot do a call that another one may be able to do."""


@dataclass(frozen=True)
class Ended:
    """A call, by its number, and what came of it: a value, or why it was lost for good."""

    number: int
    value: Any = None
    lost: WorkerLost | None = None


@dataclass(frozen=True)
class _Call:
    number: int
    arguments: tuple[Any, ...]
    attempts: int = 0


class Pool:
    """Processes that Ray has. ray: the package, connected. most: calls at once; None for as many
    as there are CPUs. threads: CPUs of a call."""

    def __init__(self, ray: Any, most: int | None = None, threads: int = 1) -> None:
        self.ray, self.most, self.threads = ray, most, threads

    @property
    def processors(self) -> int:
        """How many CPUs all nodes have together by now."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def check(self) -> None:
        """An error if no node has as many CPUs as a call takes: it would wait for ever."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        most = max((node["Resources"].get("CPU", 0) for node in nodes), default=0)
        if most < self.threads:
            raise ArgumentError(
                f"a task takes {self.threads} CPUs (--threads), and no node of the Ray cluster has "
                f"more than {most:g}"
            )

    def put(self, value: Any) -> Any:
        """A value in the object store, once for all calls that are given what this returns."""
        return self.ray.put(value)

    def run(
        self, function: Callable[..., Any], calls: Iterable[Sequence[Any]], most: int | None = None
    ) -> Generator[Ended, None, None]:
        """Calls of a function as they end. It must be found by its name in a module that every
        node has. An error that it raises is raised here. most: calls that are given to Ray at once;
        None for all, or as many as the pool allows."""
        with Calls(self, function, most) as running:
            for arguments in calls:
                running.add(*arguments)
            while running.count:
                ended = running.next()
                if ended is not None:
                    yield ended

    def map(
        self, function: Callable[..., Any], calls: Iterable[Sequence[Any]]
    ) -> Generator[Any, None, None]:
        """What calls of a function return, in their order; WorkerLost for one that is lost for
        good."""
        ahead = 2 * max(self.processors // self.threads, 1)
        early: dict[int, Ended] = {}
        wanted = 0
        with closing(self.run(function, calls, ahead)) as found:
            for ended in found:
                early[ended.number] = ended
                while wanted in early:
                    first = early.pop(wanted)
                    wanted += 1
                    if first.lost is not None:
                        raise first.lost
                    yield first.value


class Calls:
    """Calls of a function that are waiting or at work. most: that are given to Ray at once."""

    def __init__(self, pool: Pool, function: Callable[..., Any], most: int | None = None) -> None:
        self.ray, self.function = pool.ray, function
        self.most = min([one for one in (most, pool.most) if one is not None], default=None)
        self.remote = self.ray.remote(num_cpus=pool.threads, max_retries=0)(_checked)
        self.waiting: deque[_Call] = deque()
        self.working: dict[Any, _Call] = {}
        self.added = 0

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        """Interrupt what is at work, and let it stop what it has started."""
        references = list(self.working)
        if not references or not self.ray.is_initialized():
            return
        for reference in references:
            self.ray.cancel(reference, force=False)
        self.ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)

    @property
    def count(self) -> int:
        """How many calls have not ended."""
        return len(self.waiting) + len(self.working)

    def add(self, *arguments: Any) -> int:
        """The number of one more call."""
        self.waiting.append(_Call(self.added, arguments))
        self._submit()
        self.added += 1
        return self.added - 1

    def next(self) -> Ended | None:
        """A call that has ended; None if none does for a moment."""
        self._submit()
        ready, _ = self.ray.wait(list(self.working), num_returns=1, timeout=LOOK_SECONDS)
        if not ready:
            return None
        call = self.working.pop(ready[0])
        ended = self._ended(ready[0], call)
        if ended is None:
            self.waiting.append(replace(call, attempts=call.attempts + 1))
        return ended

    def _submit(self) -> None:
        while self.waiting and (self.most is None or len(self.working) < self.most):
            call = self.waiting.popleft()
            reference = self.remote.remote(VERSION, self.function, *call.arguments)
            self.working[reference] = call

    def _ended(self, reference: Any, call: _Call) -> Ended | None:
        """What came of a call; None if it is to be made again."""
        errors = self.ray.exceptions
        try:
            return Ended(call.number, self.ray.get(reference))
        except errors.RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, NodeTrouble):
                if isinstance(cause, BoundlabError):
                    raise cause from error
                raise
            reason = str(cause)
        except errors.RayError as error:  # the process, the machine, or its memory
            lines = str(error).strip().split("\n")
            reason = f"{type(error).__name__}: {lines[0][:200]}"
        if call.attempts + 1 < ATTEMPTS:
            return None
        text = f"its worker was lost {ATTEMPTS} times, at last by {reason}"
        return Ended(call.number, lost=WorkerLost(text))


def _checked(version: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, if this node has the same boundlab."""
    if version != VERSION:
        raise ArgumentError(
            f"{socket.gethostname()} has boundlab {VERSION}, and the command is {version}: install "
            "the same on all nodes"
        )
    return function(*arguments)


def import_ray() -> Any:
    """The package, an extra."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ArgumentError(
            "this needs the package ray, on all nodes: pip install 'boundlab[ray]'"
        ) from None
    return ray


@contextmanager
def connected(address: str, most: int | None = None, threads: int = 1) -> Iterator[Pool]:
    """A pool of a Ray cluster: ``local`` for one of this machine, with ``most`` CPUs, that ends
    with the pool; ``auto`` for the one that this machine is a node of; or an address. In a program
    that is connected already it is that cluster. most: calls at once, threads: CPUs of each."""
    for name, number in (("--jobs", most), ("--threads", threads)):
        if number is not None and number < 1:
            raise ArgumentError(f"{name} must be at least 1, not {number}")
    ray = import_ray()
    if ray.is_initialized():
        yield Pool(ray, most, threads)
        return
    _connect(ray, address, _settings(address, most, threads))
    try:
        pool = Pool(ray, most, threads)
        pool.check()
        yield pool
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str, settings: dict[str, Any]) -> None:
    """Connect this process. Nodes that start here have 30 s for that by Ray's own constant, which a
    busy machine may exceed: they are started again."""
    for left in range(STARTS - 1, -1, -1):
        try:
            ray.init(**settings)
            return
        except Exception as error:  # Ray raises the bare type where a node does not start
            ray.shutdown()
            if address == LOCAL and left:
                continue
            text = " ".join(str(error).split())[:300]
            raise ArgumentError(
                f"no Ray cluster answers at {address!r} ({text}); --ray local starts one on this "
                "machine, docs/scaling.md says how to start one on many"
            ) from None


def _settings(address: str, most: int | None, threads: int) -> dict[str, Any]:
    """Arguments of ``ray.init``."""
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if address != LOCAL:
        return {"address": address, **quiet}
    processors = os.cpu_count() or 1
    if most is not None:
        processors = most * threads
    return {"address": LOCAL, "num_cpus": processors, "include_dashboard": False, **quiet}
