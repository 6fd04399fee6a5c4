"""A W&B server on this machine, enough for the real client; what goes wrong can be switched on per endpoint.

It shows that the client completes its requests and reads back what it sent. It is not W&B: what the real service
checks, refuses, limits or draws is not in it.
"""

import base64
import contextlib
import gzip
import json
import socket
import threading
import time
import urllib.parse
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fake_wandb.answers import answer
from fake_wandb.world import World

KEY = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Fault:
    """What goes wrong at an endpoint."""

    status: int | None = None
    """HTTP status to answer with."""
    delay: float = 0.0
    """Seconds to wait before answering."""
    drop: bool = False
    """Close the connection without a word."""
    after: int = 0
    """Requests to the endpoint that still go well."""


class FakeWandb:
    """The server, in a thread of this process. `faults` maps an endpoint (a GraphQL operation, `graphql`,
    `file_stream`, `storage`, or `*`) to what goes wrong there."""

    def __init__(self):
        self.world = World()
        self.faults: dict[str, Fault] = {}
        self.requests: list[str] = []
        """Endpoint of every request, in order."""
        self.unknown: list[str] = []
        """Requests that the fake has no answer for."""
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.daemon = True
        self._thread.start()

    def stop(self) -> None:
        """Die: refuse new connections and cut those that are open."""
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fault_of(self, *endpoints: str) -> Fault | None:
        for endpoint in (*endpoints, "*"):
            fault = self.faults.get(endpoint)
            if fault is not None:
                fault.after -= 1
                if fault.after < 0:
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    fake: FakeWandb

    def handle_error(self, request, client_address):
        """A client that hung up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def setup(self):
        super().setup()
        self.server.fake._open.add(self.connection)

    def finish(self):
        self.server.fake._open.discard(self.connection)
        super().finish()

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _reply(self, data: bytes, *, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _fails(self, *endpoints: str) -> bool:
        """Note the request; whether a fault was played instead of an answer."""
        fake = self.server.fake
        fake.requests.append(endpoints[0])
        fault = fake.fault_of(*endpoints)
        if fault is None:
            return False
        time.sleep(fault.delay)
        if fault.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return True
        if fault.status is not None:
            self._reply(b'{"errors":[{"message":"a fault of the test"}]}', status=fault.status)
            return True
        return False

    def _may(self) -> bool:
        given = self.headers.get("Authorization", "")
        expected = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
        if given == expected or given.endswith(KEY):
            return True
        self._reply(b'{"errors":[{"message":"user is not logged in"}]}', status=401)
        return False

    def do_POST(self):
        fake, body = self.server.fake, self._body()
        path = urllib.parse.urlparse(self.path).path
        if path == "/graphql":
            asked = json.loads(body)
            name = _operation(asked["query"])
            if self._fails(name, "graphql") or not self._may():
                return
            found = answer(fake.world, name, asked, base=fake.url)
            if found is None:
                fake.unknown.append(asked["query"])
                found = {"errors": [{"message": f"the fake server does not know {name}"}]}
            else:
                found = {"data": found}
            self._reply(json.dumps(found).encode())
        elif path.endswith("/file_stream"):
            if self._fails("file_stream") or not self._may():
                return
            _, _, entity, project, run, _ = map(urllib.parse.unquote, path.split("/"))
            _take_stream(fake.world.project(entity, project).runs[run], json.loads(body))
            self._reply(b"{}")
        elif path.startswith("/sdk/otel/"):
            self._reply(b"{}")
        else:
            fake.unknown.append(f"POST {path}")
            self._reply(b"{}", status=404)

    def do_PUT(self):
        data, path = self._body(), urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if not self._fails("storage"):
            self.server.fake.world.store(path.removeprefix("/storage/"), data)
            self._reply(b"")

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if self._fails("download"):
            return
        storage = self.server.fake.world.storage
        # Files of an artifact are asked for by storage path, or by md5 as the last part of a path.
        data = storage.get(path.removeprefix("/storage/"), storage.get(path.rpartition("/")[2]))
        if data is None:
            self.server.fake.unknown.append(f"GET {path}")
            self._reply(b"", status=404)
        else:
            self._reply(data, kind="application/octet-stream")


def _operation(query: str) -> str:
    words = query.replace("(", " ").replace("{", " ").split()
    return next((words[i + 1] for i, w in enumerate(words[:-1]) if w in ("query", "mutation")), "anonymous")


def _take_stream(run, sent: dict) -> None:
    for name, part in (sent.get("files") or {}).items():
        lines = run.stream.setdefault(name, {})
        for position, line in enumerate(part.get("content") or [], start=part.get("offset") or 0):
            lines[position] = line
    if sent.get("complete"):
        run.exit_code = sent.get("exitcode")
        run.state = "finished" if run.exit_code == 0 else "failed"
