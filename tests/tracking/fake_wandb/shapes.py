"""How the fake server tells what it has: the shapes that the client checks. Knows the world, no operation."""

import json

from fake_wandb.world import FakeArtifact, FakeProject, FakeRun, World

ENTITY = "lab"
CREATED = "2026-01-01T00:00:00Z"


def connection(edges: list) -> dict:
    page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"totalCount": len(edges), "pageInfo": page, "edges": edges}


def project_of(world: World, variables: dict) -> FakeProject:
    return world.project(variables.get("entity") or ENTITY, variables["project"])


def summary_of(run: FakeRun) -> str:
    return (run.lines("wandb-summary.json") or [run.fields.get("summaryMetrics") or "{}"])[-1]


def run_record(run: FakeRun) -> dict:
    variables = run.fields
    return {
        "id": run.name, "name": run.name, "projectId": "1", "tags": variables.get("tags") or [],
        "displayName": variables.get("displayName"), "sweepName": None, "state": run.state,
        "config": variables.get("config") or "{}", "group": variables.get("groupName"), "jobType": variables.get("jobType"),
        "commit": None, "readOnly": False, "createdAt": CREATED, "heartbeatAt": CREATED, "description": None,
        "notes": variables.get("notes"), "systemMetrics": "{}", "summaryMetrics": summary_of(run),
        "historyLineCount": len(run.lines("wandb-history.jsonl")), "user": {"name": ENTITY, "username": ENTITY},
        "historyKeys": {},
    }  # fmt: skip


def run_info_record(world: World, artifact: FakeArtifact, name: str | None) -> dict | None:
    if name is None:
        return None
    return {"__typename": "Run", "id": name, "name": name, "project": project_record(world, artifact)}


def project_record(world: World, artifact: FakeArtifact) -> dict:
    entity, project = world.homes[artifact.id]
    return {"id": project, "internalId": "1", "name": project, "entity": {"name": entity}}


def collection_record(world: World, artifact: FakeArtifact, *, whole: bool = False) -> dict:
    variables = {
        "__typename": "ArtifactSequence",
        "name": artifact.name,
        "project": project_record(world, artifact),
    }
    if whole:
        variables |= {
            "id": f"sequence-{artifact.name}", "type": {"__typename": "ArtifactType", "id": artifact.type, "name": artifact.type},
            "description": None, "createdAt": CREATED, "updatedAt": CREATED, "tags": {"edges": []}, "aliases": {"edges": []},
            "defaultArtifactType": {"name": artifact.type}, "state": "READY",
        }  # fmt: skip
    return variables


def aliases_record(world: World, artifact: FakeArtifact) -> list[dict]:
    project = world.project(*world.homes[artifact.id])
    return [
        {"__typename": "ArtifactAlias", "id": f"alias-{alias}-{id}", "alias": alias, "artifactCollection": collection_record(world, artifact)}
        for (name, alias), id in project.aliases.items()
        if id == artifact.id and name == artifact.name
    ]  # fmt: skip


def artifact_record(world: World, artifact: FakeArtifact) -> dict:
    sizes = [len(world.storage.get(path, b"")) for path in artifact.files.values()]
    entries = json.loads(world.storage.get(artifact.manifest or "", b"{}")).get("contents", {})
    return {
        "__typename": "Artifact", "id": artifact.id, "artifactSequence": collection_record(world, artifact),
        "versionIndex": artifact.version, "artifactType": {"name": artifact.type}, "description": None,
        "metadata": artifact.metadata, "ttlDurationSeconds": -2, "ttlIsInherited": True, "tags": [],
        "historyStep": None, "state": artifact.state, "size": sum(sizes), "digest": artifact.digest,
        "commitHash": artifact.id, "fileCount": len(entries), "createdAt": CREATED, "updatedAt": CREATED,
        "aliases": aliases_record(world, artifact),
    }  # fmt: skip
