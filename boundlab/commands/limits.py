"""What a process may take: time from its start, and memory. Nothing of torch is needed here."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PARENT = "BOUNDLAB_PARENT"
"""Environment variable: the number of the process with which this one is to end."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when the one that started it ends."""


def beginning(arguments: Sequence[str] | None) -> float:
    """When a command began, on the monotonic clock. arguments: as they were given to a function;
    None if they are those of the process, which then began with it."""
    now = time.monotonic()
    if arguments is None:
        now -= process_age()
    return now


def process_age() -> float:
    """Seconds since this process was started, imports included. Where the system does not tell, the
    time that it has computed, which is all of it on a machine without other work."""
    computed = time.process_time()
    try:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(words[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return computed
    return max(age, computed)


def end_with_parent() -> None:
    """Let the system end this process with the one that started it, where Linux can and the
    starter has asked for it: what nobody waits for any more computes for nobody."""
    parent = os.environ.pop(PARENT, "")  # it is not the parent of what this process may start
    if not parent.isdigit() or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it has ended before
        os.kill(os.getpid(), signal.SIGKILL)


def is_about_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch's, which need not be imported yet
        or "out of memory" in text
        or "can't allocate memory" in text
    )
