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
    def here() -> Processes:
        """As torchrun says in the environment; joins the group of processes if there are several (nccl on GPUs, else gloo)."""
        count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        gpu = torch.cuda.is_available()
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
        if count > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if gpu else "gloo")
        return Processes(rank, count, device)

    @property
    def device_ids(self) -> list[int] | None:
        return None if self.device.type == "cpu" else [self.device.index or 0]

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
        """Leave the group. Whatever shared its work over it (a trainer) should be gone by then: now and then a process whose
        DistributedDataParallel outlives the group is ended by gloo when the interpreter ends."""
        if self.count > 1 and dist.is_initialized():
            gc.collect()
            if sys.exc_info()[0] is None:  # nobody's threads go while another one still talks to them
                dist.barrier()
            dist.destroy_process_group()
