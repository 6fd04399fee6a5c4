"""Many processes at one registry, some killed: versions without gaps, no litter, an exact index, no half artifacts."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pessimal.tracking.integrity import damages
from pessimal.tracking.registry import Manifest, Registry, line_of

pytestmark = pytest.mark.slow  # processes that are killed

KILLED = -signal.SIGKILL


def lives(*plans: dict) -> list[dict]:
    script = Path(__file__).with_name("registry_lives.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(plans)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
    assert [p for p in root.rglob(".*") if p.name != ".lock"] == [], (
        "neither staging folders nor half indexes"
    )
    assert sorted(p.name for p in root.iterdir()) == [".lock", "index.jsonl", "report"]
    homes = {
        home.name: sorted(int(v.name[1:]) for v in home.iterdir()) for home in (root / "report").iterdir()
    }
    assert all(versions == list(range(len(versions))) for versions in homes.values()), homes
    assert all(homes.values()), "no empty folder"
    on_disk = {f"report/{name}/v{version}" for name, versions in homes.items() for version in versions}
    lines = (root / "index.jsonl").read_text().splitlines()
    assert lines == [line_of(f.relative_to(root).as_posix(), m.document()) for f, m in published], (
        "the index is exact"
    )
    assert {json.loads(line)["path"] for line in lines} == on_disk
    for one, manifest in published:
        if one != folder:
            whole(one)
        assert json.loads((one / "manifest.json").read_text()) == manifest.document()
    return [m for _, m in published if m.name != "last"]


def test_eight_writers_of_which_three_are_killed_while_two_read(tmp_path):
    root = tmp_path / "registry"
    kills = {1: 3, 4: 12, 6: 19}  # of the same name, of another, of its last
    writers = [
        {
            "names": ["same" if i % 2 else f"of-writer-{w}" for i in range(20)],
            "kill": {"fill": kills[w]} if w in kills else None,
        }
        for w in range(8)
    ]
    (result,) = lives({"root": str(root), "writers": writers, "readers": 2})
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
    configs = {(root / f"report/{m.name}/v{m.version}/run_config.json").read_text() for m in published}
    assert len(configs) == len(published), "each of its own run"


@pytest.mark.parametrize("first", [0, 1])
def test_killed_before_any_of_its_changes_it_leaves_a_sound_registry(tmp_path, first):
    """One publish is killed before each change it makes; the second of two is in a registry that exists."""
    roots = [tmp_path / str(number) / "registry" for number in range(30)]
    for root in roots:
        root.parent.mkdir()
        if first:
            Registry(root).publish("report", "before", fill)
    result = lives(
        *({"root": str(root), "writers": [{"names": ["a"], "kill": {"change": n}}], "readers": 0}
          for n, root in enumerate(roots))
    )  # fmt: skip
    codes = [code for one in result for code in one["writers"]]
    changes = codes.index(0)
    assert codes == [KILLED] * changes + [0] * (30 - changes)
    assert 10 <= changes < 30, "it makes so many changes"
    published = [{m.name for m in check(root)} - {"before"} for root in roots]
    renamed = published.index({"a"})
    assert 0 < renamed < changes, "there are moments before the artifact is whole, and others after"
    assert published == [set()] * renamed + [{"a"}] * (30 - renamed)


def fill(folder):
    for part in range(3):
        (folder / f"{part}.txt").write_text(f"writer x, artifact 0, part {part}\n" * 200)
