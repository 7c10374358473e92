"""Files from plain addresses: checked by SHA-256, resumed where a connection broke off.

What has arrived of a file lies beside it as NAME.part. The next attempt goes on from there, also
that of another run; the file itself is there whole and checked, or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ATTEMPTS = 3
"""How often an address is asked for a file."""
PAUSE = 2.0
"""Seconds before the second attempt; the next pause is twice as long."""
SILENCE = 20.0
"""Seconds after which a server that sends nothing counts as absent."""
CHUNK = 1 << 18


class DownloadError(Exception):
    """A file could not be downloaded; the message says why."""


class NoRetryError(DownloadError):
    """The address will not give the file at the next attempt either."""


@dataclass(frozen=True)
class Download:
    """A file as servers have it: its name, its size in bytes, its SHA-256 as hexadecimal digits,
    and the addresses of the folders that it lies in."""

    name: str
    size: int
    sha256: str
    folders: tuple[str, ...]


def download(file: Download, folder: Path, report: Callable[[int], None]) -> Path:
    """The path of the file in a folder; it is fetched if it is not there.

    ``report`` is called with the number of bytes that are there. Addresses are tried one after the
    other; a failure of all is an error that names each."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    if target.is_file() and _sha256(target) == file.sha256:
        report(file.size)
        return target
    reasons = []
    for address in file.folders:
        try:
            _from_address(f"{address}{file.name}", file, part, report)
        except DownloadError as error:
            reasons.append(f"{address}{file.name}: {error}")
        else:
            os.replace(part, target)
            return target
    raise DownloadError("; ".join(reasons))


def _from_address(address: str, file: Download, part: Path, report: Callable[[int], None]) -> None:
    """Bring ``part`` to the size and the checksum of the file."""
    for attempt in range(ATTEMPTS):
        try:
            _receive(address, file, part, report)
            return _verify(file, part)
        except NoRetryError:
            raise
        except DownloadError as error:
            failure = error
        if attempt + 1 < ATTEMPTS:
            time.sleep(PAUSE * 2**attempt)
    raise failure


def _receive(address: str, file: Download, part: Path, report: Callable[[int], None]) -> None:
    """Ask for what is missing of a file and write it behind what is there."""
    there = _size(part)
    if there > file.size:  # left by something else
        part.unlink()
        there = 0
    if there == file.size:
        return report(there)
    request = urllib.request.Request(address)
    if there:
        request.add_header("Range", f"bytes={there}-")
    try:
        with urllib.request.urlopen(request, timeout=SILENCE) as response:
            if not _goes_on(response, there):
                there = 0
            _check_length(response, file.size - there)
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab" if there else "wb") as output:
                _copy(response, output.write, there, file.size, report)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)  # the next attempt begins anew
        if error.code in (401, 403, 404, 410):
            raise NoRetryError(f"the server says {error.code} {error.reason}") from error
        raise DownloadError(f"the server says {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "reason", None) or error
        raise DownloadError(f"{said or type(error).__name__}") from error


def _goes_on(response: http.client.HTTPResponse, there: int) -> bool:
    """Whether an answer begins behind the bytes that are there, as was asked for."""
    if response.status != http.client.PARTIAL_CONTENT:
        return False
    given = response.headers.get("Content-Range", "")
    if not given.startswith(f"bytes {there}-"):
        raise NoRetryError(f"asked for bytes from {there} on, the server sent '{given}'")
    return True


def _check_length(response: http.client.HTTPResponse, expected: int) -> None:
    """Refuse another file before it is loaded."""
    length = response.headers.get("Content-Length")
    if length is not None and length.isdigit() and int(length) != expected:
        raise NoRetryError(
            f"{expected} bytes were expected, but the server has {length}: this is another file"
        )


def _copy(
    response: http.client.HTTPResponse,
    write: Callable[[bytes], object],
    there: int,
    size: int,
    report: Callable[[int], None],
) -> None:
    report(there)
    while chunk := response.read(CHUNK):
        there += len(chunk)
        if there > size:
            raise NoRetryError(f"the server sends more than the {size} bytes of the file")
        write(chunk)
        report(there)
    if there < size:
        raise DownloadError(f"the connection broke off after {there} of {size} bytes")


def _verify(file: Download, part: Path) -> None:
    """Remove what is not the file: going on with it would never give the file."""
    found = _sha256(part)
    if found != file.sha256:
        part.unlink()
        raise DownloadError(f"its SHA-256 is {found}, which should be {file.sha256}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def total(files: Iterable[Download]) -> int:
    """The bytes of all of them."""
    return sum(file.size for file in files)
