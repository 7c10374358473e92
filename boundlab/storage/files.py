"""Writing files so that a reader never meets half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from boundlab.errors import ArgumentError


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Replace the file at ``path`` by ``content`` in one step: whatever interrupts it, the old file
    or the new one is there, whole."""
    path = Path(path)
    if isinstance(content, str):
        content = content.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files private
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ArgumentError(
            f"cannot write {path}: {error.strerror or error}; choose another place"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
