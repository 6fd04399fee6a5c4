"""What the fake server remembers: projects, runs, artifacts, files. Knows no HTTP and no GraphQL."""

import base64
import hashlib
import itertools
from dataclasses import dataclass, field


@dataclass
class FakeArtifact:
    """One version of a collection."""

    id: str
    name: str
    """Name of its collection."""
    type: str
    digest: str
    metadata: str
    created_by: str | None
    """Name of the run that logged it."""
    wanted_aliases: list[str]
    state: str = "PENDING"
    version: int | None = None
    """Index in its collection, given when it is committed."""
    files: dict[str, str] = field(default_factory=dict)
    """Storage path of each file."""
    manifest: str | None = None
    """Storage path of its manifest."""
    used_by: list[str] = field(default_factory=list)


@dataclass
class FakeRun:
    """One run of a project."""

    name: str
    """What the client calls the run's id."""
    fields: dict = field(default_factory=dict)
    """What upsertBucket was sent: displayName, groupName, jobType, tags, config, summaryMetrics …"""
    stream: dict[str, dict[int, str]] = field(default_factory=dict)
    """Lines of each streamed file, by their position."""
    state: str = "running"
    exit_code: int | None = None

    def lines(self, file: str) -> list[str]:
        """The lines of a streamed file, in order."""
        return [line for _, line in sorted(self.stream.get(file, {}).items())]


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
        versions = self.collections.get(collection, [])
        wanted = self.aliases.get((collection, alias or "latest"))
        return next((a for a in versions if a.id == wanted or f"v{a.version}" == alias), None)


class World:
    """Everything that was sent, in memory."""

    def __init__(self):
        self.projects: dict[tuple[str, str], FakeProject] = {}
        self.artifacts: dict[str, FakeArtifact] = {}
        self.clients: dict[str, str] = {}
        """Artifact id by the id that the client gave it."""
        self.storage: dict[str, bytes] = {}
        """Uploaded bytes by storage path, and by md5 in hexadecimal digits."""
        self.homes: dict[str, tuple[str, str]] = {}
        """Entity and project of each artifact."""
        self._ids = itertools.count(1)

    def project(self, entity: str, name: str) -> FakeProject:
        return self.projects.setdefault((entity, name), FakeProject())

    def fresh_id(self, kind: str) -> str:
        return base64.b64encode(f"{kind}:{next(self._ids)}".encode()).decode()

    def store(self, path: str, data: bytes) -> None:
        self.storage[path] = data
        self.storage[hashlib.md5(data).hexdigest()] = data

    def create(self, variables: dict, project: FakeProject) -> FakeArtifact:
        """A new artifact, or the committed one of the same digest, which W&B does not take twice."""
        name = variables.get("artifactCollectionName") or variables["artifactCollectionNames"][0]
        aliases = [entry["alias"] for entry in variables.get("aliases") or []]
        for known in project.collections.get(name, []):
            if known.digest == variables["digest"]:
                self._point(project, known, aliases)
                self.clients[variables.get("clientID")] = known.id
                return known
        made = FakeArtifact(
            id=self.fresh_id("Artifact"),
            name=name,
            type=variables["artifactTypeName"],
            digest=variables["digest"],
            metadata=variables.get("metadata") or "{}",
            created_by=variables.get("runName"),
            wanted_aliases=aliases,
        )
        self.artifacts[made.id] = made
        self.clients[variables.get("clientID")] = made.id
        return made

    def commit(self, artifact: FakeArtifact, project: FakeProject) -> None:
        """Let a complete artifact count as the next version."""
        versions = project.collections.setdefault(artifact.name, [])
        artifact.state, artifact.version = "COMMITTED", len(versions)
        versions.append(artifact)
        self._point(project, artifact, artifact.wanted_aliases)

    @staticmethod
    def _point(project: FakeProject, artifact: FakeArtifact, aliases: list[str]) -> None:
        for alias in aliases:
            project.aliases[artifact.name, alias] = artifact.id
