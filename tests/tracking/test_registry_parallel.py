"""Many processes at one registry, some killed: versions without gaps, no litter, no half
artifacts."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pessimal.tracking.registry import Manifest, Registry, damages

pytestmark = pytest.mark.slow  # processes that are killed

KILLED = -signal.SIGKILL


def whole(folder: Path) -> None:
    texts = [(folder / f"{part}.txt").read_text() for part in range(3)]
    assert [len(text.splitlines()) for text in texts] == [200, 200, 200]
    assert len({line.rpartition(",")[0] for text in texts for line in text.splitlines()}) == 1, (
        "of one writer"
    )


def check(root: Path) -> list[Manifest]:
    """Everything that must hold after the next publish, whoever was killed before it."""
    folder, _ = Registry(root).publish("report", "last", lambda f: (f / "a.txt").write_text("a"))
    published = Registry(root).manifests()
    assert list(damages(Registry(root))) == []
    assert [p for p in root.rglob(".*") if p.name != ".lock"] == [], "no staging folders"
    homes = {
        home.name: sorted(int(v.name[1:]) for v in home.iterdir())
        for home in (root / "report").iterdir()
    }
    assert all(versions == list(range(len(versions))) for versions in homes.values()), homes
    assert all(homes.values()), "no empty folder"
    for one, _ in published:
        if one != folder:
            whole(one)
    return [m for _, m in published if m.name != "last"]


def test_eight_writers_of_which_three_are_killed_while_two_read(tmp_path):
    root = tmp_path / "registry"
    kills = {1: 3, 4: 12, 6: 19}  # of the same name, of another, of its last
    writers = [
        {"names": ["same" if i % 2 else f"of-writer-{w}" for i in range(20)], "kill": kills.get(w)}
        for w in range(8)
    ]
    script = Path(__file__).with_name("registry_lives.py")
    done = subprocess.run(
        [sys.executable, str(script), str(root), json.dumps(writers), "2"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["writers"] == [KILLED if w in kills else 0 for w in range(8)]
    for reader in result["readers"]:
        assert reader["wrong"] == []
        assert reader["rounds"] >= 2
    published = check(root)
    expected = Counter(
        name for w, writer in enumerate(writers) for name in writer["names"][: kills.get(w, 20)]
    )
    assert Counter(m.name for m in published) == expected
    assert sum(expected.values()) == 5 * 20 + 3 + 12 + 19
    configs = {
        (root / f"report/{m.name}/v{m.version}/run_config.json").read_text() for m in published
    }
    assert len(configs) == len(published), "each of its own run"
