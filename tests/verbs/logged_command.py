"""`pessimal`, with a note of every stored shard in the file $SHARD_LOG: which process, which pass,
which batch.

A script for `test_scale.py`; Lightning and torchrun start it again in each process, as they would
`-m pessimal`.
"""

import os

from pessimal.__main__ import main
from pessimal.scoring.loop import Shards

write = Shards.write


def logged(self, batch, rows, rewards):
    write(self, batch, rows, rewards)
    process = os.environ.get("RANK") or os.environ.get("LOCAL_RANK", "0")
    with open(os.environ["SHARD_LOG"], "a") as log:
        log.write(f"{process} {self.folder.parent.name}/{self.folder.name} {batch}\n")


Shards.write = logged

if __name__ == "__main__":
    main()
