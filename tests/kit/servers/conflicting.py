"""A small S3 that refuses some conditional puts with 409 and stores nothing, as the real one does while others put or delete."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code></Error>"


class ConflictingS3:
    """`conflicts`: how many puts to come are refused for names that begin so, below the prefix `p/` of the bucket `b`.
    `lost`: how many are stored and answered with 500. `objects`: what it holds, by name."""

    def __init__(self, port: int) -> None:
        self.options = f"region=us-east-1&endpoint=http://127.0.0.1:{port}&allow_http=true"
        self.url = f"s3://b/p?{self.options}"
        self.objects: dict[str, bytes] = {}
        self.conflicts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._lock = Lock()

    def put(self, name: str, data: bytes, *, if_none: bool) -> tuple[int, bytes]:
        with self._lock:
            for start, left in self.conflicts.items():
                if if_none and left and name.startswith(start):
                    self.conflicts[start] -= 1
                    return 409, CONFLICT
            if if_none and name in self.objects:
                return 412, b""
            self.objects[name] = data
            for start, left in self.lost.items():
                if left and name.startswith(start):
                    self.lost[start] -= 1
                    return 500, b""
            return 200, b""


@contextmanager
def conflicting_s3() -> Iterator[ConflictingS3]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(*made.put(self._name(), data, if_none=self.headers.get("If-None-Match") == "*"))

        def do_GET(self) -> None:
            found = made.objects.get(self._name())
            self._answer(*((404, b"") if found is None else (200, found)))

        do_HEAD = do_GET

        def do_DELETE(self) -> None:
            made.objects.pop(self._name(), None)
            self._answer(204, b"")

        def do_POST(self) -> None:
            wanted = self.rfile.read(int(self.headers["Content-Length"])).decode()
            keys = re.findall("<Key>p/(.*?)</Key>", wanted)
            for key in keys:
                made.objects.pop(key, None)
            gone = "".join(f"<Deleted><Key>p/{key}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

        def _name(self) -> str:
            return self.path.partition("?")[0].removeprefix("/b/p/").replace("%2F", "/")

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"x"')
            self.send_header("Last-Modified", "Fri, 20 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = ConflictingS3(server.server_port)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
