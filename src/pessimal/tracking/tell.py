"""What W&B is told of published contents, the same for every verb.

Knows the mirror, and names of tables and figures. Does not know what they show.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.tracking.mirror import MAX_TABLE_ROWS, Mirror

if TYPE_CHECKING:  # brings matplotlib
    from pessimal.report.contents import Contents


def tell_contents(mirror: Mirror, contents: "Contents", folder: Path) -> None:
    """The summary, the small tables under their names, and the figures as `figures/NAME` with the sentences under them."""
    mirror.summary(contents.summary)
    for name, table in contents.whole_tables().items():
        if len(table) <= MAX_TABLE_ROWS:
            mirror.table(name, table)
    for figure, sentence in contents.captions().items():
        mirror.image(f"figures/{figure}", folder / "figures" / f"{figure}.png", sentence)
