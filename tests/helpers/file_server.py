"""A server of files on this machine that can break off, lie and refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Files:
    """What a server has, and what it is asked for.

    ``cut``: how many bytes of a file are sent before the connection breaks off, once for each
    entry; ``ranges``: whether a part of a file may be asked for."""

    files: dict[str, bytes]
    cut: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Files]:
    """A server at ``address`` (with a slash behind it) while the context lasts."""
    served = Files(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.removeprefix("/"), self.headers.get("Range")
            served.asked.append((name, wanted))
            if name not in served.files:
                self.send_error(404)
                return
            content, start = served.files[name], 0
            if wanted is not None and served.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start else 200)
            if start:
                last, size = len(content) - 1, len(content)
                self.send_header("Content-Range", f"bytes {start}-{last}/{size}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + served.cut.pop(0) if served.cut else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.address = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
