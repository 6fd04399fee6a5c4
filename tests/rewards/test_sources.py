"""The digest of a function covers the user's modules that it imports; `is_pinned` says whether that
is all that decides."""

import sys
from importlib import metadata

import pytest

from pessimal.rewards import callable as callable_module
from pessimal.rewards.callable import CallableSpec, open_callable, wrap_callable

REWARD = "def reward(prompt, responses): return [float(len(one)) for one in responses]\n"
FILES = {
    "g.py": "",
    "h.py": "import deep.under\n",
    "deep/__init__.py": "",
    "deep/under.py": "LIMIT = 3\n",
    "pkg/__init__.py": "",
    "pkg/sub.py": "from . import near\nfrom .inner.far import X\n",
    "pkg/near.py": "A = 1\n",
    "pkg/inner/__init__.py": "from ..up import B\n",
    "pkg/inner/far.py": "X = 1\n",
    "pkg/up.py": "B = 1\n",
    "stranger.py": "Z = 1\n",
}


H = {"h.py", "deep/__init__.py", "deep/under.py"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A grader's folder; what is imported from there is forgotten afterwards."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    callable_module._module.cache_clear()
    yield tmp_path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    callable_module._module.cache_clear()


def opened(folder, code=None):
    """The reward in g.py as a new process opens it."""
    if code is not None:
        (folder / "g.py").write_text(f"{code}\n{REWARD}")
    callable_module._module.cache_clear()
    target = {"_target_": f"{folder / 'g.py'}:reward"}
    return open_callable(CallableSpec(callable=target))


@pytest.mark.parametrize(
    ("code", "covers"),
    [
        ("import h", H),
        ("try:\n    import none_such\nexcept ImportError:\n    from h import deep", H),
        (
            "from pkg import sub",
            {
                f"pkg/{name}.py"
                for name in ("__init__", "sub", "near", "up", "inner/__init__", "inner/far")
            },
        ),
    ],
)
def test_what_is_imported_changes_the_digest_and_nothing_else_does(folder, code, covers):
    before = opened(folder, code)
    assert before.is_pinned
    assert opened(folder).weights_digest == before.weights_digest
    changes = set()
    for name in FILES.keys() - {"g.py"}:
        (folder / name).write_text(FILES[name] + "CHANGED = 1\n")
        if opened(folder).weights_digest != before.weights_digest:
            changes.add(name)
        (folder / name).write_text(FILES[name])
    assert changes == covers
    assert opened(folder).weights_digest == before.weights_digest


def test_an_installed_distribution_counts_by_its_name_and_version(folder, monkeypatch):
    before = opened(folder, "import numpy.linalg, yaml").weights_digest
    assert opened(folder).weights_digest == before
    version = metadata.version
    other = {"numpy": "0.0.1"}
    monkeypatch.setattr(metadata, "version", lambda name: other.get(name) or version(name))
    assert opened(folder).weights_digest != before


@pytest.mark.parametrize(
    ("code", "is_pinned"),
    [
        ("import json, re\nx = re.compile('a'); y = json.loads('1'); model = str.upper", True),
        ("def f(name):\n    return __import__(name)", False),
        ("def f():\n    return open('data.txt').read()", False),
        ("read = open", False),
        ("import subprocess", False),
        ("import os\nlimit = os.environ.get('LIMIT')", False),
        ("import os\nlimit = os.path.join('a', 'b')", True),
    ],
)
def test_code_that_reaches_beyond_its_modules_is_not_pinned(folder, code, is_pinned):
    assert opened(folder, code).is_pinned == is_pinned
    (folder / "h.py").write_text(code)
    assert opened(folder, "def late():\n    import h").is_pinned == is_pinned, "nor by another's"


def test_a_function_of_a_module_of_the_users_covers_what_that_imports(folder):
    (folder / "m.py").write_text(f"import h\n{REWARD}")
    sys.path.insert(0, str(folder))
    digests = []
    for text in ("LIMIT = 4\n", "LIMIT = 5\n"):
        (folder / "deep/under.py").write_text(text)
        spec = CallableSpec(callable={"_target_": "m.reward"})
        digests.append(open_callable(spec).weights_digest)
    assert digests[0] != digests[1]


def test_a_function_in_memory_counts_with_what_it_closes_over_and_is_never_pinned():
    def make(values):
        def reward(prompt, responses):
            return [values.get((prompt, one), 0.0) for one in responses]

        return wrap_callable(reward)

    first, same, other = (make({("a", "b"): x}) for x in (1.0, 1.0, 2.0))
    assert first.weights_digest == same.weights_digest != other.weights_digest
    assert not first.is_pinned
