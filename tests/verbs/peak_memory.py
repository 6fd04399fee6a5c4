"""`pessimal`, and at the end a line with the bytes it held once the network was loaded, and the
most it ever held.

A script for `test_scale.py`, for Linux: memory is read from /proc. (The `ru_maxrss` of a process
that was started by vfork is at least that of the one that started it.)
"""

import re
import sys
from pathlib import Path

from pessimal.__main__ import main
from pessimal.rewards.reward_model import RewardModel

network, loaded = RewardModel.network, []


def memory(field):
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def measured(self, dtype=None, which=0):
    made = network(self, dtype, which)
    loaded.append(memory("VmRSS"))
    return made


RewardModel.network = measured
try:
    main()
except SystemExit as stop:
    if stop.code:
        sys.exit(stop.code)
print(loaded[0], memory("VmHWM"))
