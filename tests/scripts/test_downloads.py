"""scripts/downloads.py against a server that breaks off, lies and refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import downloads
from scripts.downloads import Download, DownloadError, download
from tests.helpers.file_server import Files, serving

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with serving({"a.bin": CONTENT}) as served:
        yield served


def wanted(*folders: str, content: bytes = CONTENT) -> Download:
    return Download("a.bin", len(content), hashlib.sha256(content).hexdigest(), folders)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole(server: Files, tmp_path: Path) -> None:
    counts: list[int] = []
    file = wanted(server.address)
    path = download(file, tmp_path / "new" / "folder", counts.append)
    assert path.read_bytes() == CONTENT and names(path.parent) == ["a.bin"]
    assert counts == sorted(counts) and counts[-1] == len(CONTENT)
    assert download(file, path.parent, counts.append) == path
    assert server.asked == [("a.bin", None)]  # once


def test_a_connection_that_breaks_off_is_resumed(server: Files, tmp_path: Path) -> None:
    server.cut = [1000, 500]
    path = download(wanted(server.address), tmp_path, lambda _: None)
    assert path.read_bytes() == CONTENT
    assert [ranges for _, ranges in server.asked] == [None, "bytes=1000-", "bytes=1500-"]


def test_the_next_run_goes_on(server: Files, tmp_path: Path) -> None:
    server.cut = [100, 100, 100]
    with pytest.raises(DownloadError, match="broke off after 300 of 10240 bytes"):
        download(wanted(server.address), tmp_path, lambda _: None)
    assert names(tmp_path) == ["a.bin.part"]
    assert download(wanted(server.address), tmp_path, lambda _: None).read_bytes() == CONTENT
    assert server.asked[-1] == ("a.bin", "bytes=300-") and names(tmp_path) == ["a.bin"]


def test_a_server_without_ranges_starts_over(server: Files, tmp_path: Path) -> None:
    server.cut, server.ranges = [1000], False
    assert download(wanted(server.address), tmp_path, lambda _: None).read_bytes() == CONTENT


def test_a_part_of_something_else_is_thrown_away(server: Files, tmp_path: Path) -> None:
    for left in (b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 1)):
        (tmp_path / "a.bin.part").write_bytes(left)
        (tmp_path / "a.bin").write_bytes(b"also wrong")
        assert download(wanted(server.address), tmp_path, lambda _: None).read_bytes() == CONTENT


def test_another_file_is_refused(server: Files, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT[:-1] + b"?"
    with pytest.raises(DownloadError, match=r"its SHA-256 is [0-9a-f]{64}, which should be"):
        download(wanted(server.address), tmp_path, lambda _: None)
    assert len(server.asked) == downloads.ATTEMPTS and names(tmp_path) == []


def test_another_length_is_refused_before_it_is_loaded(server: Files, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT + b"?"
    with pytest.raises(DownloadError, match="10240 bytes were expected, but the server has 10241"):
        download(wanted(server.address), tmp_path, lambda _: None)
    assert len(server.asked) == 1 and names(tmp_path) == []


def test_the_next_address_is_tried(server: Files, tmp_path: Path) -> None:
    absent = f"{server.address}elsewhere/"
    path = download(wanted(absent, server.address), tmp_path, lambda _: None)
    assert path.read_bytes() == CONTENT
    assert [name for name, _ in server.asked] == ["elsewhere/a.bin", "a.bin"]
    with pytest.raises(DownloadError, match=r"elsewhere/a\.bin: the server says 404"):
        download(wanted(absent), tmp_path / "other", lambda _: None)


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with serving({}) as served:
        gone = served.address
    with pytest.raises(DownloadError, match="refused"):
        download(wanted(gone), tmp_path, lambda _: None)
    assert names(tmp_path) == []
