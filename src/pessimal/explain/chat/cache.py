"""Replies on disk, each under the digest of its question: nothing is paid for twice.

Knows files. Does not judge replies: refusals and unusable replies are kept too, since they were paid for and
belong to the result. What never arrived is not kept.
"""

import json
from dataclasses import asdict
from pathlib import Path

from pessimal.explain.chat.question import Question, Reply, canonical, digest_of
from pessimal.tables.files import write_atomically


class Cache:
    """A folder of replies. Processes may share it: files are whole or absent, and the first reply to a question stays.
    Two processes that send the same at the same moment both pay, and both use the reply that was kept first."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def get(self, provenance: dict, question: Question) -> Reply | None:
        """The reply to a question of a model; None where there is none, or its file is damaged."""
        path = self._path(provenance, question)
        try:
            record = json.loads(path.read_bytes())
            # Read again from the file: a record that was changed, or put elsewhere, answers nothing.
            if digest_of(record["asked"]) != path.stem or digest_of(record["reply"]) != record["digest"]:
                return None
            return Reply(**record["reply"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None

    def put(self, provenance: dict, question: Question, reply: Reply) -> Reply:
        """Keep a reply; gives the one that stands there now. ValueError for one that never arrived."""
        if reply.failure is not None:
            raise ValueError("a failure of the transport is no reply")
        if (earlier := self.get(provenance, question)) is not None:
            return earlier
        path = self._path(provenance, question)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"asked": question_of(provenance, question), "reply": asdict(reply)}
        record["digest"] = digest_of(record["reply"])
        write_atomically(path, canonical(record).encode())
        return reply

    def _path(self, provenance: dict, question: Question) -> Path:
        key = digest_of(question_of(provenance, question))
        return self.folder / key[:2] / f"{key}.json"


def question_of(provenance: dict, question: Question) -> dict:
    """All that decides a reply, as JSON; the schema's name does not."""
    return {
        "model": provenance,
        "messages": [dict(message) for message in question.messages],
        "schema": question.schema,
        "seed": question.seed,
    }
