"""Work on parts of some images, in this process or in others: the one place where commands about
images are spread."""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from boundlab.errors import ArgumentError
from boundlab.net import Net, capture
from boundlab.scaling.ray_pool import Pool, connected, import_ray

Part = TypeVar("Part")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Subject:
    """What work is about: a captured model, and all images (N, *shape) and labels (N,) of which a
    part names some."""

    net: Net
    images: Tensor
    labels: Tensor


Work = Callable[[Subject, Part], Result]
"""What is done with a part. To be sent to other processes it must pickle, as instances of frozen
dataclasses do that are defined in a module."""


class Parts(Protocol):
    """Where work is done."""

    @property
    def is_here(self) -> bool:
        """Whether it is done in this process, so that it can tell how far it is."""

    def map(self, work: Work[Part, Result], parts: Iterable[Part]) -> Generator[Result, None, None]:
        """The results of all parts, in their order, each as soon as those before it are there."""


Spread = Callable[[Subject], Parts]
"""Where work about a subject is to be done."""


@dataclass(frozen=True, eq=False)
class Here:
    """In this process, one part after the other."""

    subject: Subject

    @property
    def is_here(self) -> bool:
        return True

    def map(self, work: Work[Part, Result], parts: Iterable[Part]) -> Generator[Result, None, None]:
        for part in parts:
            yield work(self.subject, part)


class OnRay:
    """In the processes of a pool. The model, the images and the labels are put into the object
    store once; each process captures the model once, and computes with one thread."""

    def __init__(self, pool: Pool, subject: Subject) -> None:
        self.pool = pool
        self.key = secrets.token_hex(8)
        self.sent = pool.put(Sent.of(subject))

    @property
    def is_here(self) -> bool:
        return False

    def map(self, work: Work[Part, Result], parts: Iterable[Part]) -> Generator[Result, None, None]:
        do = self.pool.put(work)
        calls = [([self.sent], self.key, do, part) for part in parts]
        yield from self.pool.map(work_there, calls)


# -- in other processes ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sent:
    """A subject as it travels: nets do not, so that the model is captured again from the same
    example, which gives the same graph. program: of a model that is no module."""

    module: nn.Module | None
    program: bytes
    example: tuple[Tensor, ...]
    images: Tensor
    labels: Tensor

    @staticmethod
    def of(subject: Subject) -> Sent:
        net, images, labels = subject.net, subject.images.cpu(), subject.labels.cpu()
        source, program = net.source, b""
        example: tuple[Tensor, ...] = (_example(net, images),)
        if isinstance(source, ExportedProgram):
            if source.example_inputs is not None:
                example = ()
            written = io.BytesIO()
            torch.export.save(source, written)
            program, module = written.getvalue(), None
        else:
            module = source
        # a clone: what shares its memory with more images would take all of them along
        return Sent(module, program, example, images.clone(), labels.clone())

    def subject(self) -> Subject:
        model: Any = self.module
        if model is None:
            model = torch.export.load(io.BytesIO(self.program))
        return Subject(capture(model, *self.example), self.images, self.labels)


def _example(net: Net, images: Tensor) -> Tensor:
    """Two images, or as many as the net takes, in its type; bytes are divided by 255."""
    shape, dtype, free = net.graph.examples[net.graph.inputs[0]]
    if images.dtype == torch.uint8:
        images = images[:2].float() / 255
    if free:
        return images[:2].to(dtype)
    return images[torch.arange(shape[0]).clamp(max=len(images) - 1)].to(dtype)


_subjects: dict[str, Subject] = {}
"""The subject that this process was last at work on, by its key: capturing takes seconds."""


def work_there(sent: Sequence[Any], key: str, work: Work[Any, Any], part: Any) -> Any:
    """Do work with a part of what was sent under a key."""
    if key not in _subjects:
        _subjects.clear()
        _subjects[key] = import_ray().get(sent[0]).subject()
    return work(_subjects[key], part)


# -- of commands -----------------------------------------------------------------------------------


@contextmanager
def parts_on(address: str | None, device: torch.device | str) -> Generator[Spread, None, None]:
    """Where a command works: in this process without an address, else on a Ray cluster."""
    if address is None:
        yield Here
        return
    if torch.device(device).type != "cpu":
        raise ArgumentError(f"--ray spreads work over CPUs, and --device {device} is none")
    with connected(address) as pool:
        yield lambda subject: OnRay(pool, subject)
