"""One thread a process: the tests run in several processes at once, and two threads on a busy core
are slower than one."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
