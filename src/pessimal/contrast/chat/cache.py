"""Replies on disk, each under the digest of what was asked: nothing that was paid for is asked twice.

Knows files. Does not know what a reply is worth: refusals and unusable replies are kept too, since they were paid for and
belong to the result. What never arrived is not kept.
"""

import json
from dataclasses import asdict
from pathlib import Path

from pessimal.contrast.chat.question import Question, Reply, canonical, digest_of
from pessimal.tables.files import write_atomically


class Cache:
    """A folder of replies. Processes may share it: files are whole or absent, and the first reply to a question stays.
    Two processes that ask the same at the same moment both pay, and both use the reply that was kept first."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def get(self, identity: dict, question: Question) -> Reply | None:
        """The reply to a question of a model; None where there is none, or its file is damaged."""
        path = self._path(identity, question)
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

    def put(self, identity: dict, question: Question, reply: Reply) -> Reply:
        """Keep a reply; gives the one that stands there now. ValueError for one that never arrived."""
        if reply.failure is not None:
            raise ValueError("a failure of the transport is no reply")
        if (earlier := self.get(identity, question)) is not None:
            return earlier
        path = self._path(identity, question)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"asked": asked(identity, question), "reply": asdict(reply)}
        record["digest"] = digest_of(record["reply"])
        write_atomically(path, canonical(record).encode())
        return reply

    def _path(self, identity: dict, question: Question) -> Path:
        key = digest_of(asked(identity, question))
        return self.folder / key[:2] / f"{key}.json"


def asked(identity: dict, question: Question) -> dict:
    """All that decides a reply, as JSON; the schema's name does not."""
    return {
        "model": identity,
        "messages": [dict(message) for message in question.messages],
        "schema": question.schema,
        "seed": question.seed,
    }
