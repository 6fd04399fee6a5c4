"""Labels beside points, where they do not lie on one another.

Knows places and boxes on an axes; knows nothing of what the points are.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from scipy.optimize import isotonic_regression

from pessimal.figures.style import INK, quiet

# Offsets in points, nearest and most natural (right, left, above, below) first.
_DIRECTIONS = [
    (1, 0),
    (-1, 0),
    (0, 1),
    (0, -1),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
    (2, 1),
    (-2, 1),
    (2, -1),
    (-2, -1),
]
_REACHES = (4, 8, 14, 22, 32, 44)
_NO_LINE = 9  # points: a label nearer than this needs no line to its point


def place_labels(
    axes: Axes,
    places: np.ndarray,
    texts: Sequence[str],
    *,
    avoid: np.ndarray | None = None,
    radius: float = 1.5,
) -> list[Annotation]:
    """Write each text near its place, joined by a hairline where it had to move away.

    Greedy: each label in turn takes the nearest free spot; a spot costs what it covers of labels set before and
    of points, and what of it leaves the axes. Draws the figure once to learn its layout, so call it last.

    Args:
        axes: already holding its points, limits and titles.
        places: (labels, 2) in data units.
        texts: one per place, drawn literally.
        avoid: (points, 2) in data units, other points which labels should rather not cover.
        radius: of the points' marks, in points.

    Returns:
        The annotations, in the order of the texts.
    """
    canvas = FigureCanvasAgg(axes.figure)
    with quiet():
        canvas.draw()  # the layout settles only now
        renderer = canvas.get_renderer()
        frame = axes.get_window_extent(renderer)
        points = axes.transData.transform(places if avoid is None else np.concatenate([places, avoid]))
        scale = axes.figure.dpi / 72  # pixels per point
        taken: list[Bbox] = []
        annotations = []
        for place, anchor, text in zip(places, points, texts, strict=False):
            label = _annotation(axes, place, text)
            extent = label.get_window_extent(renderer)
            spots = [
                (dx * (radius + reach), dy * (radius + reach)) for reach in _REACHES for dx, dy in _DIRECTIONS
            ]
            boxes = [_box(anchor, offset, extent.width, extent.height, scale) for offset in spots]
            costs = [
                _cost(box, taken, points, frame, radius=radius * scale) + np.hypot(*offset) * scale
                for box, offset in zip(boxes, spots, strict=True)
            ]
            best = int(np.argmin(costs))
            _move(label, spots[best])
            label.arrow_patch.set_visible(bool(np.hypot(*spots[best]) > radius + _NO_LINE))
            taken.append(boxes[best])
            annotations.append(label)
    return annotations


def _annotation(axes: Axes, place: np.ndarray, text: str) -> Annotation:
    """The label, not yet anywhere in particular."""
    label = axes.annotate(
        text,
        place,
        xytext=(0, 0),
        textcoords="offset points",
        fontsize=7,
        color=INK,
        parse_math=False,
        arrowprops={"arrowstyle": "-", "lw": 0.4, "color": INK, "alpha": 0.6, "shrinkA": 0, "shrinkB": 2},
        zorder=5,
    )
    label.set_in_layout(False)  # a label must not shrink the axes it was placed in
    return label


def _sides(offset: tuple[float, float]) -> tuple[str, str]:
    """A label hangs on its offset by the side that faces the point: horizontal and vertical alignment."""
    horizontal = "left" if offset[0] > 0 else "right" if offset[0] < 0 else "center"
    vertical = "bottom" if offset[1] > 0 else "top" if offset[1] < 0 else "center"
    return horizontal, vertical


def _move(label: Annotation, offset: tuple[float, float]) -> None:
    horizontal, vertical = _sides(offset)
    label.set(position=offset, horizontalalignment=horizontal, verticalalignment=vertical)


def _box(anchor: np.ndarray, offset: tuple[float, float], width: float, height: float, scale: float) -> Bbox:
    """The pixels a label would fill at an offset (in points) from its point's pixel."""
    horizontal, vertical = _sides(offset)
    x, y = anchor + np.multiply(offset, scale)
    x -= {"left": 0.0, "center": 0.5, "right": 1.0}[horizontal] * width
    y -= {"bottom": 0.0, "center": 0.5, "top": 1.0}[vertical] * height
    return Bbox.from_bounds(x, y, width, height)


def _cost(box: Bbox, taken: list[Bbox], points: np.ndarray, frame: Bbox, *, radius: float) -> float:
    """What a spot covers of other labels, of points and of the space outside the axes, in pixels²."""
    overlap = sum(_shared_area(box, other) for other in taken)
    overhang = box.width * box.height - _shared_area(box, frame)
    near = ((points > np.subtract(box.p0, radius)) & (points < np.add(box.p1, radius))).all(axis=1)
    return 10 * (overlap + overhang) + (2 * radius) ** 2 * near.sum()


def _shared_area(a: Bbox, b: Bbox) -> float:
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(width, 0.0) * max(height, 0.0)


def apart(places: np.ndarray, *, gap: float, low: float, high: float) -> np.ndarray:
    """Heights for labels `gap` from one another, in the order of their places and as near to them as can be.

    With the gaps taken out it is a monotone regression; it is cut off at the ends, and the gaps put back.
    """
    order = np.argsort(-places, kind="stable")
    steps = gap * np.arange(len(places))
    fitted = isotonic_regression(places[order] + steps, increasing=False).x
    heights = np.empty(len(places))
    heights[order] = np.clip(fitted, low + steps[-1], max(high, low + steps[-1])) - steps
    return heights
