"""The code behind a function: the user's modules that it imports, at any depth, and whether these
alone decide what it computes.

Knows where modules lie; runs none of them.
"""

import hashlib
import json
import re
import sys
import sysconfig
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path
from typing import NamedTuple

REACHING = re.compile(
    rb"\b(open|fdopen|exec|eval|compile|system|popen|getenv|environ|read_(text|bytes|csv|excel|json"
    rb"|parquet|pickle|table)|load|loadtxt|genfromtxt|fromfile|memmap|load_file|safe_open|urlopen"
    rb"|urlretrieve|__import__|import_module|run_path|run_module|from_pretrained|load_dataset"
    rb"|hf_hub_download|snapshot_download)\b"
)
"""Names by which code opens a file, a model, an address, or a module that a value names."""
DISTANT = re.compile(
    r"(aiohttp|anthropic|boto3|cohere|ctypes|datasets|docker|e2b|ftplib|google\.genai|grpc"
    r"|http\.client|httpx2?|huggingface_hub|importlib\.resources|litellm|modal"
    r"|multiprocessing\.connection|openai|paramiko|pkgutil|psycopg2?|pymongo|ray|redis|requests"
    r"|runpy|shelve|socket|sqlalchemy|sqlite3|subprocess|together|urllib\.request|urllib3"
    r"|websockets?|xmlrpc)(\.|$)"
)
"""Modules that are for files, programs or servers."""
HARMLESS = re.compile(rb"\bre\.compile\b")
FROM = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+\(?([\w, ]+)", re.M)


class Sources(NamedTuple):
    """A digest of the code behind a function, and whether it says all."""

    digest: str
    is_pinned: bool


def sources_of(file: Path) -> Sources:
    """The code of a file and of every module of the user's that it imports, wherever in the code;
    of an installed distribution the name and version count.

    `is_pinned` is False where the code opens files, starts programs, asks servers, reads the
    environment or imports by a computed name: no digest covers these.
    """
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    folders = [str(file.parent), *filter(None, sys.path)]
    own = [
        folder
        for folder in dict.fromkeys(folders)
        if not {"site-packages", "dist-packages"} & set(Path(folder).parts)
        and not any(Path(folder).is_relative_to(place) for place in standard)
    ]
    finder = ModuleFinder(path=own, excludes=["pessimal"])
    finder.run_script(str(file))
    others = set(finder.badmodules) - set(finder.modules)
    digests, is_pinned = {}, True
    for name, module in sorted(finder.modules.items()):
        if (path := getattr(module, "__file__", None)) is not None:
            content = Path(path).read_bytes()
            digests[name] = hashlib.sha256(content).hexdigest()
            is_pinned &= path.endswith(".py") and not REACHING.search(HARMLESS.sub(b"", content))
            for package, names in FROM.findall(content.decode(errors="replace")):
                others |= {f"{package}.{one.strip()}" for one in names.split(",")}
    is_pinned &= not any(DISTANT.match(name) for name in others)
    packages = sorted({name.partition(".")[0] for name in others} - sys.stdlib_module_names)
    distributions = metadata.packages_distributions() if packages else {}  # reads a file of each
    for package in packages:
        names = distributions.get(package, ())
        digests |= {f"{name}==": metadata.version(name) for name in names}
    text = json.dumps(digests, sort_keys=True)
    return Sources(hashlib.sha256(text.encode()).hexdigest(), is_pinned)
