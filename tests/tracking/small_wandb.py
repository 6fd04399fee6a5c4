"""A server that W&B's client can begin a run at, and no more; what it answers instead can be set.

It takes no artifact: what is asked of a server about artifacts is tried on objects of the client's
own (`test_push.py`).
"""

import contextlib
import gzip
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "0123456789abcdef0123456789abcdef01234567"
VIEWER = {
    "viewer": {
        "id": "1",
        "entity": "lab",
        "username": "lab",
        "flags": "{}",
        "teams": {"edges": []},
    },
    "serverInfo": {"cliVersionInfo": {"max_cli_version": "9.9.9"}, "features": []},
}


class SmallWandb:
    """The server, in a thread of this process."""

    def __init__(self):
        self.fault: int | None = None
        """HTTP status of every answer; 0 for answers that come a byte every half second for ever."""
        self.requests: list[str] = []
        """Paths, and operations of GraphQL, in order."""
        self.lines: dict[str, list[str]] = {}
        """Lines of each streamed file."""
        handler = type("Handler", (_Handler,), {"home": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        options = {"poll_interval": 0.05}
        threading.Thread(target=self._http.serve_forever, kwargs=options, daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections; those that are open get no answer."""
        self.fault = 0
        self._http.shutdown()
        self._http.server_close()

    def answer(self, operation: str, sent: dict) -> dict:
        """The answer to an operation of GraphQL."""
        if operation == "UpsertBucket":
            home = {"id": "p", "name": "p", "entity": {"id": "lab", "name": "lab"}}
            name = {"id": sent["name"], "name": sent["name"]}
            bucket = name | {"historyLineCount": 0, "project": home}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
        if operation == "CreateRunFiles":
            to = [{"name": name, "uploadUrl": f"{self.url}/{name}"} for name in sent["files"]]
            files = {"runID": sent["run"], "uploadHeaders": [], "files": to}
            return {"data": {"createRunFiles": files}}
        if operation in ("Viewer", "GetDefaultEntity", "ServerFeaturesQuery"):
            return {"data": VIEWER}
        return {"errors": [{"message": f"{operation} is not known"}]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    home: SmallWandb

    def log_message(self, *arguments):
        pass

    def handle(self):
        with contextlib.suppress(OSError):  # the client hung up
            super().handle()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer: dict = {}
        if self.path == "/graphql":
            sent = json.loads(body)
            operation = re.search(r"\b(?:query|mutation)\s+(\w+)", sent["query"])[1]
            answer = self.home.answer(operation, sent.get("variables") or {})
            self.home.requests.append(operation)
        else:
            self.home.requests.append(self.path)
        status = 200 if self.home.fault is None else self.home.fault
        if status == 0:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while True:
                self.wfile.write(b"x")
                time.sleep(0.5)
        if status == 200 and self.path.endswith("/file_stream"):
            for file, part in (json.loads(body).get("files") or {}).items():
                self.home.lines.setdefault(file, []).extend(part.get("content") or [])
        data = json.dumps(
            answer if status == 200 else {"errors": [{"message": "a fault"}]}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_PUT = do_GET = do_POST  # noqa: N815
