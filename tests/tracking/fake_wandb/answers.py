"""The fake server's answers to the GraphQL operations that wandb 0.31.0 sends, one function an operation.

The client checks the shape of the answers, so these go with its version.
"""

import json
from collections.abc import Callable

from fake_wandb.shapes import (
    CREATED,
    ENTITY,
    aliases_record,
    artifact_record,
    collection_record,
    connection,
    project_of,
    run_info_record,
    run_record,
    summary_of,
)
from fake_wandb.world import FakeArtifact, FakeRun, World

_ANSWERS: dict[str, Callable] = {}


def answer(world: World, name: str, asked: dict, *, base: str) -> dict | None:
    """The `data` of an answer, or None where the operation is not known."""
    found = _ANSWERS.get(name)
    return None if found is None else found(world, asked.get("variables") or {}, base)


def _to(*names: str):
    def register(function):
        _ANSWERS.update(dict.fromkeys(names, function))
        return function

    return register


@_to("Viewer", "GetViewer", "GetDefaultEntity", "ServerInfo")
def _viewer(world, variables, base):
    return {
        "viewer": {
            "__typename": "User", "id": "VXNlcjox", "entity": ENTITY, "username": ENTITY, "name": ENTITY,
            "email": "lab@localhost", "admin": False, "flags": "{}", "deletedAt": None,
            "apiKeys": {"edges": []}, "teams": {"edges": []},
        },
        "serverInfo": {"cliVersionInfo": {"max_cli_version": "9.9.9"}, "features": []},
    }  # fmt: skip


@_to("ServerFeaturesQuery")
def _features(world, variables, base):
    return {"serverInfo": {"features": []}}


@_to("OrgFeatureFlags", "FetchOrgEntityFromEntity", "OrganizationCoreWeaveOrganizationID")
def _organization(world, variables, base):
    return {"organization": None, "entity": None}


@_to("XXHashDigestsEnabled")
def _digests(world, variables, base):
    return {"entity": {"xxhashDigestsEnabled": False}}


@_to("FetchArtifactDigestAlgorithm")
def _algorithm(world, variables, base):
    return {"project": {"artifactType": None}}


@_to("UpsertBucket")
def _upsert(world, variables, base):
    entity, project = variables.get("entity") or ENTITY, variables.get("project") or "uncategorized"
    runs = world.project(entity, project).runs
    inserted = variables["name"] not in runs
    run = runs.setdefault(variables["name"], FakeRun(variables["name"]))
    run.fields |= {key: value for key, value in variables.items() if value is not None}
    bucket = {
        "id": run.name, "name": run.name, "displayName": run.fields.get("displayName"), "description": None,
        "config": run.fields.get("config"), "sweepName": None, "historyLineCount": 0,
        "project": {"id": project, "name": project, "entity": {"id": entity, "name": entity}},
    }  # fmt: skip
    return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}


@_to("RunResumeStatus")
def _resume(world, variables, base):
    entity, project = variables.get("entity") or ENTITY, variables["project"]
    run = world.project(entity, project).runs.get(variables["name"])
    bucket = None
    if run is not None:
        history = run.lines("wandb-history.jsonl")
        bucket = {
            "id": run.name, "name": run.name, "displayName": run.fields.get("displayName"),
            "summaryMetrics": summary_of(run), "logLineCount": 0, "historyLineCount": len(history), "eventsLineCount": 0,
            "historyTail": json.dumps(history[-1:]), "eventsTail": "[]", "config": run.fields.get("config") or "{}",
            "tags": run.fields.get("tags") or [], "notes": None, "wandbConfig": '{"t":1}',
        }  # fmt: skip
    return {
        "model": {"id": project, "name": project, "entity": {"id": entity, "name": entity}, "bucket": bucket}
    }


@_to("CreateRunFiles")
def _run_files(world, variables, base):
    files = [
        {"name": name, "uploadUrl": f"{base}/storage/runs/{variables['run']}/{name}"}
        for name in variables["files"]
    ]
    return {"createRunFiles": {"runID": variables["run"], "uploadHeaders": [], "files": files}}


@_to("MarkRunFilesUploaded")
def _uploaded(world, variables, base):
    return {"markRunFilesUploaded": {"success": True}}


@_to("CreateArtifact")
def _create(world, variables, base):
    variables = variables.get("input") or variables
    home = (variables.get("entityName") or ENTITY, variables["projectName"])
    project = world.project(*home)
    made = world.create(variables, project)
    world.homes[made.id] = home
    versions = project.collections.get(made.name, [])
    latest = {"id": versions[-1].id} if versions else None
    sequence = {"id": f"sequence-{made.name}", "latestArtifact": latest}
    return {
        "createArtifact": {"artifact": {"id": made.id, "state": made.state, "artifactSequence": sequence}}
    }


@_to("CreateArtifactManifest", "UpdateArtifactManifest")
def _manifest(world, variables, base):
    id = variables.get("artifactID") or variables["artifactManifestID"]
    path = world.artifacts[id].manifest = f"manifests/{id}.json"
    file = {"id": path, "uploadUrl": f"{base}/storage/{path}", "uploadHeaders": []}
    found = {"artifactManifest": {"id": id, "file": file}}
    return {"createArtifactManifest": found, "updateArtifactManifest": found}


@_to("CreateArtifactFiles")
def _files(world, variables, base):
    edges = []
    for file in variables["input"]["artifactFiles"]:
        artifact = world.artifacts[file["artifactID"]]
        path = artifact.files[file["name"]] = f"artifacts/{artifact.id}/{file['name']}"
        node = {
            "storagePath": path, "uploadUrl": f"{base}/storage/{path}", "uploadHeaders": [],
            "uploadMultipartUrls": None, "artifact": {"id": artifact.id},
        }  # fmt: skip
        edges.append({"node": node})
    return {"createArtifactFiles": {"files": {"edges": edges}}}


@_to("CommitArtifact")
def _commit(world, variables, base):
    artifact = world.artifacts[variables["artifactID"]]
    if artifact.state != "COMMITTED":
        world.commit(artifact, world.project(*world.homes[artifact.id]))
    return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.digest}}}


@_to("ClientIDMapping")
def _mapping(world, variables, base):
    id = world.clients.get(variables["clientID"])
    return {"clientIDMapping": {"serverID": id} if id else None}


@_to("UseArtifact")
def _use(world, variables, base):
    variables = variables.get("input") or variables
    artifact = world.artifacts[variables["artifactID"]]
    artifact.used_by.append(variables["runName"])
    return {"useArtifact": {"artifact": artifact_record(world, artifact)}}


@_to("AddAliases")
def _add_aliases(world, variables, base):
    variables = variables["input"]
    artifact = world.artifacts[variables["artifactID"]]
    project = world.project(*world.homes[artifact.id])
    for entry in variables["aliases"]:
        project.aliases[artifact.name, entry["alias"]] = artifact.id
    return {"result": {"success": True}}


@_to("UpdateArtifact")
def _update(world, variables, base):
    artifact = world.artifacts[(variables.get("input") or variables)["artifactID"]]
    return {"result": {"artifact": artifact_record(world, artifact)}}


@_to("ProjectInternalId")
def _internal_id(world, variables, base):
    return {"project": {"internalId": "1"}}


@_to("Run", "QueryRunInfo")
def _run(world, variables, base):
    found = project_of(world, variables).runs.get(variables.get("name") or variables.get("run"))
    return {"project": {"run": None if found is None else run_record(found)}}


@_to("RunOutputArtifacts")
def _outputs(world, variables, base):
    return _of_run(world, lambda artifact: artifact.created_by == variables["run"])


@_to("RunInputArtifacts")
def _inputs(world, variables, base):
    return _of_run(world, lambda artifact: variables["run"] in artifact.used_by)


def _of_run(world: World, chosen: Callable[[FakeArtifact], bool]) -> dict:
    found = [a for a in world.artifacts.values() if a.state == "COMMITTED" and chosen(a)]
    edges = [{"node": artifact_record(world, a)} for a in found]
    return {"project": {"run": {"artifacts": connection(edges)}}}


@_to("ArtifactMembershipByName")
def _by_name(world, variables, base):
    project = project_of(world, variables)
    artifact = project.find(variables["name"])
    if artifact is None:
        return {"project": {"artifactCollectionMembership": None}}
    membership = {
        "__typename": "ArtifactCollectionMembership", "id": f"membership-{artifact.id}",
        "versionIndex": artifact.version, "createdAt": CREATED, "aliases": aliases_record(world, artifact),
        "artifactCollection": collection_record(world, artifact), "artifact": artifact_record(world, artifact),
    }  # fmt: skip
    return {"project": {"artifactCollectionMembership": membership}}


@_to("ArtifactCreatedBy")
def _created_by(world, variables, base):
    artifact = world.artifacts[variables["id"]]
    return {"artifact": {"createdBy": run_info_record(world, artifact, artifact.created_by)}}


@_to("FetchArtifactManifest", "ArtifactManifest")
def _fetch_manifest(world, variables, base):
    artifact = world.artifacts[variables.get("id") or variables["artifact_id"]]
    return {"artifact": {"currentManifest": {"file": {"directUrl": f"{base}/storage/{artifact.manifest}"}}}}


@_to("GetArtifactMembershipFileUrls")
def _file_urls(world, variables, base):
    artifact = project_of(world, variables).find(f"{variables['collection']}:{variables['alias']}")
    edges = [
        {"node": {"__typename": "File", "name": name, "directUrl": f"{base}/storage/{path}"}}
        for name, path in artifact.files.items()
    ]
    membership = {"files": connection(edges)}
    return {
        "project": {
            "artifactCollection": {"__typename": "ArtifactSequence", "artifactMembership": membership}
        }
    }


@_to("ProjectArtifactTypes")
def _types(world, variables, base):
    found = sorted({v[0].type for v in project_of(world, variables).collections.values()})
    edges = [{"node": {"__typename": "ArtifactType", "id": t, "name": t, "description": None, "createdAt": CREATED}} for t in found]  # fmt: skip
    return {"project": {"artifactTypes": connection(edges)}}


@_to("ProjectArtifactType")
def _type(world, variables, base):
    name = variables.get("artifactType") or variables.get("artifactTypeName") or variables.get("type")
    node = {"__typename": "ArtifactType", "id": name, "name": name, "description": None, "createdAt": CREATED}
    return {"project": {"artifactType": node}}


@_to("ArtifactTypeArtifactCollections")
def _collections(world, variables, base):
    wanted = variables.get("artifactType") or variables.get("type")
    found = [v[0] for v in project_of(world, variables).collections.values() if v[0].type == wanted]
    edges = [{"node": collection_record(world, artifact, whole=True)} for artifact in found]
    return {"project": {"artifactType": {"artifactCollections": connection(edges)}}}


@_to("ProjectArtifacts")
def _project_artifacts(world, variables, base):
    versions = reversed(project_of(world, variables).collections.get(variables["collection"], []))
    edges = [{"version": f"v{a.version}", "node": artifact_record(world, a)} for a in versions]
    collection = {"__typename": "ArtifactSequence", "artifacts": connection(edges)}
    return {"project": {"artifactType": {"artifactCollection": collection}}}
