"""Files that travel: their bytes are put into Ray's object store once, and written to a folder of
each node that needs them once."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boundlab.errors import BoundlabError
from boundlab.onnx.reading import EXTERNAL, read_model
from boundlab.scaling.ray_pool import NodeTrouble, Pool, import_ray
from boundlab.storage.files import write_atomically

NETWORKS = (".onnx", ".onnx.gz")


@dataclass(frozen=True)
class Parcel:
    """A file, with those of its folder that it refers to. name: of the file. contents: each file's
    bytes by name, as references to the object store. digest: of all of them."""

    name: str
    contents: Mapping[str, Any]
    digest: str

    def unpacked(self, folder: Path) -> Path:
        """The file in a folder of this node, where the first who needs it writes it. It is written
        beside and moved there: two who need it at once may both write, none reads half of it."""
        own = folder / self.digest
        try:
            if not own.exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                beside = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
                self._write(beside)
                self._move(beside, own)
        except (OSError, BoundlabError) as error:
            raise NodeTrouble(f"a node cannot write {self.name}: {error}") from error
        return own / self.name

    def _write(self, folder: Path) -> None:
        for name, reference in self.contents.items():
            write_atomically(folder / name, import_ray().get(reference))

    def _move(self, beside: Path, own: Path) -> None:
        try:
            beside.rename(own)
        except OSError:  # another process was faster
            shutil.rmtree(beside, ignore_errors=True)
            if not own.exists():
                raise


class Sender:
    """Makes parcels of files, one of each."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.token = secrets.token_hex(8)
        """Of the folders on all nodes: nobody else can know their names beforehand."""
        self._parcels: dict[Path, Parcel] = {}
        self._references: dict[Path, Any] = {}

    def parcel(self, path: Path) -> Parcel:
        """The parcel of a file, packed when it is asked for first."""
        if path not in self._parcels:
            names = {path.name: path}
            names.update({place: path.parent / place for place in places(path)})
            total = hashlib.sha256()
            contents = {}
            for name, file in sorted(names.items()):
                content = file.read_bytes()
                total.update(f"{name}\0{len(content)}\0".encode() + content)
                if file not in self._references:
                    self._references[file] = self.pool.put(content)
                contents[name] = self._references[file]
            self._parcels[path] = Parcel(path.name, contents, total.hexdigest()[:32])
        return self._parcels[path]

    def clean(self) -> None:
        """Take the folders away from all nodes that still answer."""
        ray = self.pool.ray
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        clean = ray.remote(num_cpus=0, max_retries=0)(remove_folder)
        sent = [
            clean.options(scheduling_strategy=strategy(node["NodeID"], soft=False)).remote(
                self.token
            )
            for node in ray.nodes()
            if node["Alive"]
        ]
        if sent:
            ray.wait(sent, num_returns=len(sent), timeout=5.0)


def places(path: Path) -> Sequence[str]:
    """The files of its folder in which a network's tensors lie, by name; none if it cannot be read,
    which whoever verifies it will say."""
    if not path.name.endswith(NETWORKS):
        return ()
    try:
        tensors = read_model(path).graph.initializer
    except (BoundlabError, OSError):
        return ()
    root = path.parent.resolve()
    named = {
        entry.value
        for tensor in tensors
        if tensor.data_location == EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    inside = [name for name in sorted(named) if _is_inside(root, name)]
    return tuple(inside)


def _is_inside(root: Path, name: str) -> bool:
    try:
        path = (root / name).resolve()
        return not Path(name).is_absolute() and path.is_relative_to(root) and path.is_file()
    except (OSError, ValueError, RuntimeError):  # of names that no file can have, and loops
        return False


def node_folder(token: str) -> Path:
    """The folder of this node for files that have travelled; nodes of one machine have their
    own."""
    node = import_ray().get_runtime_context().get_node_id()
    return Path(tempfile.gettempdir()) / f"boundlab-{token}-{node[:16]}"


def remove_folder(token: str) -> None:
    """Take away the folder of this node."""
    shutil.rmtree(node_folder(token), ignore_errors=True)


def new_folder(token: str) -> Path:
    """A new folder inside that of this node."""
    folder = node_folder(token)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(prefix="task-", dir=folder))
    except OSError as error:
        text = os.strerror(error.errno or 0)
        raise NodeTrouble(f"a node cannot write to {folder}: {text}") from error
