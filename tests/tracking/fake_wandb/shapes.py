"""How the fake server tells what it has: the shapes that the client checks. Knows the world, no operation."""

import json

from fake_wandb.world import FakeArtifact, FakeProject, FakeRun, World

ENTITY = "lab"
CREATED = "2026-01-01T00:00:00Z"


def connection(edges: list) -> dict:
    page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"totalCount": len(edges), "pageInfo": page, "edges": edges}


def project_of(world: World, told: dict) -> FakeProject:
    return world.project(told.get("entity") or ENTITY, told["project"])


def summary_of(run: FakeRun) -> str:
    return (run.lines("wandb-summary.json") or [run.fields.get("summaryMetrics") or "{}"])[-1]


def told_run(run: FakeRun) -> dict:
    told = run.fields
    return {
        "id": run.name, "name": run.name, "projectId": "1", "tags": told.get("tags") or [],
        "displayName": told.get("displayName"), "sweepName": None, "state": run.state,
        "config": told.get("config") or "{}", "group": told.get("groupName"), "jobType": told.get("jobType"),
        "commit": None, "readOnly": False, "createdAt": CREATED, "heartbeatAt": CREATED, "description": None,
        "notes": told.get("notes"), "systemMetrics": "{}", "summaryMetrics": summary_of(run),
        "historyLineCount": len(run.lines("wandb-history.jsonl")), "user": {"name": ENTITY, "username": ENTITY},
        "historyKeys": {},
    }  # fmt: skip


def told_run_info(world: World, artifact: FakeArtifact, name: str | None) -> dict | None:
    if name is None:
        return None
    return {"__typename": "Run", "id": name, "name": name, "project": told_project(world, artifact)}


def told_project(world: World, artifact: FakeArtifact) -> dict:
    entity, project = world.homes[artifact.id]
    return {"id": project, "internalId": "1", "name": project, "entity": {"name": entity}}


def told_collection(world: World, artifact: FakeArtifact, *, whole: bool = False) -> dict:
    told = {
        "__typename": "ArtifactSequence",
        "name": artifact.name,
        "project": told_project(world, artifact),
    }
    if whole:
        told |= {
            "id": f"sequence-{artifact.name}", "type": {"__typename": "ArtifactType", "id": artifact.type, "name": artifact.type},
            "description": None, "createdAt": CREATED, "updatedAt": CREATED, "tags": {"edges": []}, "aliases": {"edges": []},
            "defaultArtifactType": {"name": artifact.type}, "state": "READY",
        }  # fmt: skip
    return told


def told_aliases(world: World, artifact: FakeArtifact) -> list[dict]:
    project = world.project(*world.homes[artifact.id])
    return [
        {"__typename": "ArtifactAlias", "id": f"alias-{alias}-{id}", "alias": alias, "artifactCollection": told_collection(world, artifact)}
        for (name, alias), id in project.aliases.items()
        if id == artifact.id and name == artifact.name
    ]  # fmt: skip


def told_artifact(world: World, artifact: FakeArtifact) -> dict:
    sizes = [len(world.storage.get(path, b"")) for path in artifact.files.values()]
    entries = json.loads(world.storage.get(artifact.manifest or "", b"{}")).get("contents", {})
    return {
        "__typename": "Artifact", "id": artifact.id, "artifactSequence": told_collection(world, artifact),
        "versionIndex": artifact.version, "artifactType": {"name": artifact.type}, "description": None,
        "metadata": artifact.metadata, "ttlDurationSeconds": -2, "ttlIsInherited": True, "tags": [],
        "historyStep": None, "state": artifact.state, "size": sum(sizes), "digest": artifact.digest,
        "commitHash": artifact.id, "fileCount": len(entries), "createdAt": CREATED, "updatedAt": CREATED,
        "aliases": told_aliases(world, artifact),
    }  # fmt: skip
