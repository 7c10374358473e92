"""The processes that share a training run: those that torchrun has started, or just this one."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Processes:
    """rank of ``count`` processes, and the device of this one."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @staticmethod
    def here(device: torch.device | None = None) -> Processes:
        """As torchrun says in the environment; joins the group of processes if there are several
        (nccl on GPUs, else gloo).

        device: where to compute, by default a GPU if there is one; of several processes on GPUs
        each takes its own.
        """
        count = int(os.environ.get("WORLD_SIZE", "1"))
        rank = int(os.environ.get("RANK", "0"))
        if device is None:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            if count > 1 or device.index is None:
                device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            # nccl takes the current one, which would be the first for all processes
            torch.cuda.set_device(device)
        if count > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return Processes(rank, count, device)

    @property
    def device_ids(self) -> list[int] | None:
        if self.device.type == "cpu":
            return None
        return [self.device.index or 0]

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count == 1:
            return value
        total = value.detach().clone().to(self.device)
        dist.all_reduce(total)
        return total

    def mean(self, value: Tensor) -> Tensor:
        return self.sum(value) / self.count

    def leave(self) -> None:
        """Leave the group. Whatever shared its work over it (a trainer) should be gone by then: now
        and then a process whose DistributedDataParallel outlives the group is ended by gloo when
        the interpreter ends."""
        if self.count > 1 and dist.is_initialized():
            gc.collect()
            # nobody's threads go while another one still talks to them
            if sys.exc_info()[0] is None:
                dist.barrier()
            dist.destroy_process_group()
