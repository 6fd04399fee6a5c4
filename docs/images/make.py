"""The two pictures of README.md and the manual, from the quickstart's results.

python docs/images/make.py runs/registry/comparison/quickstart/v0
runs/registry/report/quickstart/v0/index.html
"""

import shutil
import sys
from pathlib import Path

import pandas as pd

from pessimal.plots import TokenTable
from pessimal.plots.draw import draw

HERE = Path(__file__).resolve().parent
LISTS = {
    "alder, on greatest": ("alder-wordpiece-0", "greatest"),
    "birch, on worst": ("birch-wordpiece-0", "worst"),
    "birch (BPE), on worst": ("birch-bpe-0", "worst"),
    "cedar, on worst": ("cedar-wordpiece-0", "worst"),
}
"""Of the family's 21 lists in the quickstart some that hold no slur: the two ends of most others
do."""


def wants(comparison: Path) -> None:
    """What four models want most and least."""
    table = pd.read_parquet(comparison / "tables" / "extremes.parquet")
    chosen = [
        table[(table["model"] == model) & (table["prompt"] == prompt)].assign(model=name)
        for name, (model, prompt) in LISTS.items()
    ]
    (figure,) = draw(TokenTable(tabs=(), shown=8), pd.concat(chosen)).values()
    figure.savefig(HERE / "wants.png", dpi=200, facecolor="white", metadata={"Software": None})


def screen(page: Path) -> None:
    """The page's first screen."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        view = browser.new_page(viewport={"width": 1400, "height": 900})
        view.goto(page.resolve().as_uri())
        view.wait_for_timeout(500)
        view.screenshot(path=HERE / "page.png")
        browser.close()


if __name__ == "__main__":
    wants(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        screen(Path(sys.argv[2]))
