# ruff: noqa: N802 methods of the world are called as the client's GraphQL operations are
"""A W&B server on this machine, enough for the client of wandb 0.31.0; what goes wrong can be
switched on per endpoint.

It shows that the client completes its requests and reads back what it sent. It is not W&B: what the
real service checks, refuses, limits or draws is not in it.
"""

import base64
import contextlib
import gzip
import hashlib
import itertools
import json
import re
import socket
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "0123456789abcdef0123456789abcdef01234567"
ENTITY = "lab"
CREATED = "2026-01-01T00:00:00Z"


@dataclass
class Fault:
    """What goes wrong at an endpoint."""

    status: int
    """HTTP status to answer with; 0 for an answer that comes a byte every half second, for ever."""
    after: int = 0
    """Requests to the endpoint that still go well."""


@dataclass
class FakeArtifact:
    """One version of a collection."""

    id: str
    home: tuple[str, str]
    """Entity and project."""
    name: str
    """Name of its collection."""
    type: str
    digest: str
    metadata: str
    created_by: str | None
    """Id of the run that logged it."""
    wanted_aliases: list[str]
    state: str = "PENDING"
    version: int | None = None
    """Index in its collection, given when it is committed."""
    files: dict[str, str] = field(default_factory=dict)
    """Storage path of each file."""
    manifest: str = ""
    """Storage path of its manifest."""
    used_by: list[str] = field(default_factory=list)


@dataclass
class FakeRun:
    """One run of a project."""

    name: str
    """What the client calls the run's id."""
    fields: dict = field(default_factory=dict)
    """What UpsertBucket was sent: displayName, groupName, jobType, tags, config, summaryMetrics
    …"""
    stream: dict[str, dict[int, str]] = field(default_factory=dict)
    """Lines of each streamed file, by their position."""
    state: str = "running"

    def lines(self, file: str) -> list[str]:
        """The lines of a streamed file, in order."""
        return [line for _, line in sorted(self.stream.get(file, {}).items())]

    @property
    def summary(self) -> str:
        return (self.lines("wandb-summary.json") or [self.fields.get("summaryMetrics") or "{}"])[-1]


@dataclass
class FakeProject:
    """Runs and collections of artifacts."""

    runs: dict[str, FakeRun] = field(default_factory=dict)
    collections: dict[str, list[FakeArtifact]] = field(default_factory=dict)
    """Committed versions by the collection's name."""
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)
    """Artifact id by collection and alias: an alias stands at one version at a time."""

    def find(self, name: str) -> FakeArtifact | None:
        """The artifact that `collection:alias` or `collection:vN` means."""
        collection, _, alias = name.rpartition("/")[2].partition(":")
        wanted = self.aliases.get((collection, alias or "latest"))
        versions = self.collections.get(collection, [])
        return next((a for a in versions if a.id == wanted or f"v{a.version}" == alias), None)

    def point(self, artifact: FakeArtifact, aliases: list[str]) -> None:
        self.aliases |= {(artifact.name, alias): artifact.id for alias in aliases}


def connection(nodes: list) -> dict:
    page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"totalCount": len(nodes), "pageInfo": page, "edges": [{"node": node} for node in nodes]}


def type_record(name: str) -> dict:
    return {
        "__typename": "ArtifactType",
        "id": name,
        "name": name,
        "description": None,
        "createdAt": CREATED,
    }


class World:
    """Everything that was sent, in memory; below, the answers to the client's GraphQL operations, a
    method each."""

    def __init__(self):
        self.projects: dict[tuple[str, str], FakeProject] = {}
        self.artifacts: dict[str, FakeArtifact] = {}
        self.storage: dict[str, bytes] = {}
        """Uploaded bytes by storage path, and by md5 in hexadecimal digits."""
        self.url = ""
        self._ids = itertools.count(1)

    def project(self, entity: str | None, name: str) -> FakeProject:
        return self.projects.setdefault((entity or ENTITY, name), FakeProject())

    def store(self, path: str, data: bytes) -> None:
        self.storage[path] = self.storage[hashlib.md5(data).hexdigest()] = data

    def _at(self, sent: dict) -> FakeProject:
        return self.project(sent.get("entity"), sent["project"])

    # How it tells what it has: the client checks these shapes

    @staticmethod
    def _home(artifact: FakeArtifact) -> dict:
        entity, project = artifact.home
        return {"id": project, "internalId": "1", "name": project, "entity": {"name": entity}}

    def _collection(self, artifact: FakeArtifact) -> dict:
        return {
            "__typename": "ArtifactSequence",
            "name": artifact.name,
            "project": self._home(artifact),
            "id": f"sequence-{artifact.name}",
            "type": type_record(artifact.type),
            "description": None,
            "createdAt": CREATED,
            "updatedAt": CREATED,
            "tags": {"edges": []},
            "aliases": {"edges": []},
            "defaultArtifactType": {"name": artifact.type},
            "state": "READY",
        }

    def _sequence(self, artifact: FakeArtifact) -> dict:
        return {
            "__typename": "ArtifactSequence",
            "name": artifact.name,
            "project": self._home(artifact),
        }

    def _aliases(self, artifact: FakeArtifact) -> list[dict]:
        known = self.project(*artifact.home).aliases
        return [
            {
                "__typename": "ArtifactAlias",
                "id": f"alias-{alias}-{id}",
                "alias": alias,
                "artifactCollection": self._sequence(artifact),
            }
            for (name, alias), id in known.items()
            if id == artifact.id and name == artifact.name
        ]

    def _artifact(self, artifact: FakeArtifact) -> dict:
        size = sum(len(self.storage.get(path, b"")) for path in artifact.files.values())
        entries = json.loads(self.storage.get(artifact.manifest, b"{}")).get("contents", {})
        return {
            "__typename": "Artifact",
            "id": artifact.id,
            "artifactSequence": self._sequence(artifact),
            "versionIndex": artifact.version,
            "artifactType": {"name": artifact.type},
            "description": None,
            "metadata": artifact.metadata,
            "ttlDurationSeconds": -2,
            "ttlIsInherited": True,
            "tags": [],
            "historyStep": None,
            "state": artifact.state,
            "size": size,
            "digest": artifact.digest,
            "commitHash": artifact.id,
            "fileCount": len(entries),
            "createdAt": CREATED,
            "updatedAt": CREATED,
            "aliases": self._aliases(artifact),
        }

    # What the client asks of a server

    def Viewer(self, sent):
        return {
            "viewer": {
                "__typename": "User",
                "id": "VXNlcjox",
                "entity": ENTITY,
                "username": ENTITY,
                "name": ENTITY,
                "email": "lab@localhost",
                "admin": False,
                "flags": "{}",
                "deletedAt": None,
                "apiKeys": {"edges": []},
                "teams": {"edges": []},
            },
            "serverInfo": {"cliVersionInfo": {"max_cli_version": "9.9.9"}, "features": []},
        }

    GetDefaultEntity = ServerFeaturesQuery = Viewer

    def OrganizationCoreWeaveOrganizationID(self, sent):
        return {"entity": {"organization": {"coreWeaveOrganizationId": None}}}

    # Runs

    def UpsertBucket(self, sent):
        entity, project = sent.get("entity") or ENTITY, sent.get("project") or "uncategorized"
        runs = self.project(entity, project).runs
        inserted = sent["name"] not in runs
        run = runs.setdefault(sent["name"], FakeRun(sent["name"]))
        run.fields |= {key: value for key, value in sent.items() if value is not None}
        bucket = {
            "id": run.name,
            "name": run.name,
            "displayName": run.fields.get("displayName"),
            "description": None,
            "config": run.fields.get("config"),
            "sweepName": None,
            "historyLineCount": 0,
            "project": {"id": project, "name": project, "entity": {"id": entity, "name": entity}},
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def Run(self, sent):
        run = self._at(sent).runs.get(sent.get("name") or sent.get("run"))
        if run is None:
            return {"project": {"run": None}}
        given = run.fields
        record = {
            "id": run.name,
            "name": run.name,
            "projectId": "1",
            "tags": given.get("tags") or [],
            "displayName": given.get("displayName"),
            "sweepName": None,
            "state": run.state,
            "config": given.get("config") or "{}",
            "group": given.get("groupName"),
            "jobType": given.get("jobType"),
            "commit": None,
            "readOnly": False,
            "createdAt": CREATED,
            "heartbeatAt": CREATED,
            "description": None,
            "notes": given.get("notes"),
            "systemMetrics": "{}",
            "summaryMetrics": run.summary,
            "historyKeys": {},
            "historyLineCount": len(run.lines("wandb-history.jsonl")),
            "user": {"name": ENTITY, "username": ENTITY},
        }
        return {"project": {"run": record}}

    def CreateRunFiles(self, sent):
        to = f"{self.url}/storage/runs/{sent['run']}"
        files = [{"name": name, "uploadUrl": f"{to}/{name}"} for name in sent["files"]]
        return {"createRunFiles": {"runID": sent["run"], "uploadHeaders": [], "files": files}}

    def take_stream(self, entity: str, project: str, run: str, sent: dict) -> None:
        """Lines of a run's files, as they grow."""
        found = self.project(entity, project).runs[run]
        for name, part in (sent.get("files") or {}).items():
            lines = enumerate(part.get("content") or [], start=part.get("offset") or 0)
            found.stream.setdefault(name, {}).update(lines)
        if sent.get("complete"):
            found.state = "finished" if sent.get("exitcode") == 0 else "failed"

    # Artifacts

    def CreateArtifact(self, sent):
        """A new artifact, or the committed one of the same digest, which W&B does not take
        twice."""
        sent = sent.get("input") or sent
        home = (sent.get("entityName") or ENTITY, sent["projectName"])
        project, name = (
            self.project(*home),
            (sent.get("artifactCollectionName") or sent["artifactCollectionNames"][0]),
        )
        aliases = [entry["alias"] for entry in sent.get("aliases") or []]
        versions = project.collections.get(name, [])
        made = next((known for known in versions if known.digest == sent["digest"]), None)
        if made is None:
            made = FakeArtifact(
                id=base64.b64encode(f"Artifact:{next(self._ids)}".encode()).decode(),
                home=home,
                name=name,
                type=sent["artifactTypeName"],
                digest=sent["digest"],
                metadata=sent.get("metadata") or "{}",
                created_by=sent.get("runName"),
                wanted_aliases=aliases,
            )
            self.artifacts[made.id] = made
        else:
            project.point(made, aliases)
        latest = {"id": versions[-1].id} if versions else None
        sequence = {"id": f"sequence-{made.name}", "latestArtifact": latest}
        record = {"id": made.id, "state": made.state, "artifactSequence": sequence}
        return {"createArtifact": {"artifact": record}}

    def CreateArtifactManifest(self, sent):
        id = sent.get("artifactID") or sent["artifactManifestID"]
        path = self.artifacts[id].manifest = f"manifests/{id}.json"
        file = {"id": path, "uploadUrl": f"{self.url}/storage/{path}", "uploadHeaders": []}
        found = {"artifactManifest": {"id": id, "file": file}}
        return {"createArtifactManifest": found}

    def CreateArtifactFiles(self, sent):
        nodes = []
        for file in sent["input"]["artifactFiles"]:
            artifact = self.artifacts[file["artifactID"]]
            path = artifact.files[file["name"]] = f"artifacts/{artifact.id}/{file['name']}"
            nodes.append(
                {
                    "storagePath": path,
                    "uploadUrl": f"{self.url}/storage/{path}",
                    "uploadHeaders": [],
                    "uploadMultipartUrls": None,
                    "artifact": {"id": artifact.id},
                }
            )
        return {"createArtifactFiles": {"files": connection(nodes)}}

    def CommitArtifact(self, sent):
        artifact = self.artifacts[sent["artifactID"]]
        if artifact.state != "COMMITTED":
            project = self.project(*artifact.home)
            versions = project.collections.setdefault(artifact.name, [])
            artifact.state, artifact.version = "COMMITTED", len(versions)
            versions.append(artifact)
            project.point(artifact, artifact.wanted_aliases)
        return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.digest}}}

    def UseArtifact(self, sent):
        sent = sent.get("input") or sent
        artifact = self.artifacts[sent["artifactID"]]
        artifact.used_by.append(sent["runName"])
        return {"useArtifact": {"artifact": self._artifact(artifact)}}

    def AddAliases(self, sent):
        artifact = self.artifacts[sent["input"]["artifactID"]]
        self.project(*artifact.home).point(
            artifact, [entry["alias"] for entry in sent["input"]["aliases"]]
        )
        return {"result": {"success": True}}

    def UpdateArtifact(self, sent):
        artifact = self.artifacts[(sent.get("input") or sent)["artifactID"]]
        return {"result": {"artifact": self._artifact(artifact)}}

    def ArtifactMembershipByName(self, sent):
        artifact, membership = self._at(sent).find(sent["name"]), None
        if artifact is not None:
            membership = {
                "__typename": "ArtifactCollectionMembership",
                "id": f"membership-{artifact.id}",
                "versionIndex": artifact.version,
                "createdAt": CREATED,
                "aliases": self._aliases(artifact),
                "artifactCollection": self._sequence(artifact),
                "artifact": self._artifact(artifact),
            }
        return {"project": {"artifactCollectionMembership": membership}}

    def ArtifactByID(self, sent):
        return {"artifact": self._artifact(self.artifacts[sent["id"]])}

    def ArtifactType(self, sent):
        found = self._at(sent).find(sent["name"])
        return {"project": {"artifact": found and {"artifactType": {"name": found.type}}}}

    def ArtifactCreatedBy(self, sent):
        artifact = self.artifacts[sent["id"]]
        name = artifact.created_by
        run = (
            {"__typename": "Run", "id": name, "name": name, "project": self._home(artifact)}
            if name
            else None
        )
        return {"artifact": {"createdBy": run}}

    def FetchArtifactManifest(self, sent):
        path = self.artifacts[sent.get("id") or sent["artifact_id"]].manifest
        return {
            "artifact": {"currentManifest": {"file": {"directUrl": f"{self.url}/storage/{path}"}}}
        }

    def GetArtifactMembershipFileUrls(self, sent):
        files = self._at(sent).find(f"{sent['collection']}:{sent['alias']}").files
        nodes = [
            {"__typename": "File", "name": name, "directUrl": f"{self.url}/storage/{path}"}
            for name, path in files.items()
        ]
        membership = {"files": connection(nodes)}
        collection = {"__typename": "ArtifactSequence", "artifactMembership": membership}
        return {"project": {"artifactCollection": collection}}

    def ProjectArtifactTypes(self, sent):
        types = sorted({versions[0].type for versions in self._at(sent).collections.values()})
        return {"project": {"artifactTypes": connection([type_record(name) for name in types])}}

    def ProjectArtifactType(self, sent):
        name = sent.get("artifactType") or sent.get("artifactTypeName") or sent.get("type")
        return {"project": {"artifactType": type_record(name)}}

    def ArtifactTypeArtifactCollections(self, sent):
        wanted = sent.get("artifactType") or sent.get("type")
        firsts = [versions[0] for versions in self._at(sent).collections.values()]
        nodes = [self._collection(artifact) for artifact in firsts if artifact.type == wanted]
        return {"project": {"artifactType": {"artifactCollections": connection(nodes)}}}


class FakeWandb:
    """The server, in a thread of this process. `faults` maps an endpoint (a GraphQL operation,
    `graphql`, `file_stream`, `storage`, or `*`) to what goes wrong there."""

    def __init__(self):
        self.world = World()
        self.faults: dict[str, Fault] = {}
        self.requests: list[str] = []
        """Endpoint of every request that has an answer, in order."""
        self.every: list[str] = []
        """Method and path of every request, known or not."""
        self.unknown: list[str] = []
        """Requests that the fake has no answer for."""
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self.url = self.world.url = f"http://127.0.0.1:{self._http.server_port}"
        self.open: set[socket.socket] = set()
        options = {"poll_interval": 0.05}
        threading.Thread(target=self._http.serve_forever, kwargs=options, daemon=True).start()

    def stop(self) -> None:
        """Die: refuse new connections and cut those that are open."""
        self._http.shutdown()
        self._http.server_close()
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def fault_of(self, *endpoints: str) -> Fault | None:
        """The fault that is due at a request, which is noted."""
        self.requests.append(endpoints[0])
        for fault in filter(None, map(self.faults.get, (*endpoints, "*"))):
            fault.after -= 1
            if fault.after < 0:
                return fault
        return None

    def answer(self, asked: dict) -> dict:
        """To a GraphQL request."""
        name = operation_of(asked)
        found = getattr(self.world, name, None)
        if found is None:
            self.unknown.append(asked["query"])
            return {"errors": [{"message": f"the fake server does not know {name}"}]}
        return {"data": found(asked.get("variables") or {})}


def operation_of(asked: dict) -> str:
    found = re.search(r"\b(?:query|mutation)\s+(\w+)", asked["query"])
    return found[1] if found else "anonymous"


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
        self.fake = self.server.fake
        self.fake.open.add(self.connection)

    def finish(self):
        self.fake.open.discard(self.connection)
        super().finish()

    @property
    def _path(self) -> str:
        return urllib.parse.unquote(urllib.parse.urlparse(self.path).path)

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _reply(self, data: bytes, *, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _drip(self) -> None:
        with contextlib.suppress(OSError):  # until the client hangs up
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while True:
                self.wfile.write(b"x")
                time.sleep(0.5)

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            self.fake.every.append(f"{self.command} {self.path}")
        return parsed

    def _fails(self, *endpoints: str) -> bool:
        """Whether a fault was played instead of an answer."""
        fault = self.fake.fault_of(*endpoints)
        if fault is not None and not fault.status:
            self._drip()
        elif fault is not None:
            self._reply(b'{"errors":[{"message":"a fault of the test"}]}', status=fault.status)
        return fault is not None

    def _refused(self) -> bool:
        given = self.headers.get("Authorization", "")
        if given == "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode() or given.endswith(
            KEY
        ):
            return False
        self._reply(b'{"errors":[{"message":"user is not logged in"}]}', status=401)
        return True

    def do_POST(self):
        body, path = self._body(), self._path
        if path == "/graphql":
            asked = json.loads(body)
            if not self._fails(operation_of(asked), "graphql") and not self._refused():
                self._reply(json.dumps(self.fake.answer(asked)).encode())
        elif path.endswith("/file_stream"):
            if not self._fails("file_stream") and not self._refused():
                self.fake.world.take_stream(*path.split("/")[2:5], json.loads(body))
                self._reply(b"{}")
        elif path.startswith("/sdk/otel/"):
            self._reply(b"{}")
        else:
            self.fake.unknown.append(f"POST {path}")
            self._reply(b"{}", status=404)

    def do_PUT(self):
        data = self._body()
        if not self._fails("storage"):
            self.fake.world.store(self._path.removeprefix("/storage/"), data)
            self._reply(b"")

    def do_GET(self):
        if self._fails("download"):
            return
        # Files of an artifact are asked for by storage path, or by md5 as the last part of a path.
        path, storage = self._path, self.fake.world.storage
        data = storage.get(path.removeprefix("/storage/"), storage.get(path.rpartition("/")[2]))
        if data is None:
            self.fake.unknown.append(f"GET {path}")
        self._reply(
            data or b"", status=404 if data is None else 200, kind="application/octet-stream"
        )
