"""The figure of curves: one large panel and smaller ones under it. Needs matplotlib, which is an extra.

It uses a separate `Figure`, without pyplot's window, backend and global state.
"""

import math
import textwrap
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from monobeast.plotting.curves import MeanCurve

# Okabe and Ito's colors, which the color-blind can tell apart, without the yellow that is too pale for a line.
_COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"]
_GRAY = "#555555"
_WIDTH, _LARGE_HEIGHT, _SMALL_HEIGHT = 8.0, 4.5, 2.0  # inches
_LINE_HEIGHT = 0.21  # inches, of the legend
_LEGEND_WIDTH = 115  # characters: about the large panel's
_SHORT_LEGEND = (5, 60)  # lines, characters: beyond it hardly any curves leave room for it
_UNITS = [(1e9, "B"), (1e6, "M"), (1e3, "k")]


class Panel(NamedTuple):
    """One panel."""

    title: str
    curves: list[MeanCurve | None]  # one a group, in the order of the legend; None: this group has none


def draw(title: str, x_label: str, labels: list[str], has_band: bool, panels: list[Panel]) -> Figure:
    """Draws the first panel large, with the legend, and the others in two columns under it, with the same x axis.

    Args:
        title: the settings that all curves share.
        x_label: of every panel.
        labels: of the legend, one per group.
        has_band: whether groups have several seeds, so that the legend has to explain the band.
        panels: at least one; the first has a curve for every group.
    """
    rows = math.ceil((len(panels) - 1) / 2)
    figure = Figure(figsize=(_WIDTH, _LARGE_HEIGHT + _SMALL_HEIGHT * rows), dpi=150, layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[_LARGE_HEIGHT] + [_SMALL_HEIGHT] * rows)
    large = figure.add_subplot(grid[0, :])
    _draw_panel(large, panels[0])
    large.set_title(title, loc="left", fontweight="bold", parse_math=False)
    large.set_ylabel(panels[0].title, color=_GRAY)
    _add_legend(figure, large, labels, has_band)
    small = [figure.add_subplot(grid[1 + i // 2, i % 2], sharex=large) for i in range(len(panels) - 1)]
    for axes, panel in zip(small, panels[1:], strict=True):
        _draw_panel(axes, panel)
        axes.set_title(panel.title, loc="left", fontsize="medium", color=_GRAY, parse_math=False)
        if axes.dataLim.ymin >= 0:  # else a lag between 3.99 and 4 would look like an event
            axes.update_datalim([(0, 0)], updatex=False)  # so that the margin above is one of the whole
            axes.set_ylim(bottom=0)
    for axes in [large, *small[-2:]]:  # those with nothing below them
        axes.set_xlabel(x_label, color=_GRAY)
    large.set_xlim(left=0)
    return figure


def short_number(value: float, _position: int | None = None) -> str:
    """A number in short form for an axis: 1.5M, 200k, 0.5."""
    unit, letter = next(((unit, letter) for unit, letter in _UNITS if abs(value) >= unit), (1, ""))
    return f"{value / unit:.6g}{letter}".replace("-", "\N{MINUS SIGN}")


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        if curve is None:
            continue
        color = _color(i, len(panel.curves))
        marker = "o" if len(curve.x) == 1 else None  # a line of one point is none
        axes.plot(curve.x, curve.mean, color=color, linewidth=1.6, solid_capstyle="round", marker=marker)
        if (curve.low < curve.high).any():
            axes.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.18, linewidth=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(short_number))
    axes.grid(color="#e8e8e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.tick_params(color="#bbbbbb", labelcolor=_GRAY, labelsize="small")


def _color(i: int, count: int) -> tuple | str:
    return _COLORS[i] if count <= len(_COLORS) else colormaps["turbo"](i / (count - 1))


def _add_legend(figure: Figure, axes: Axes, labels: list[str], has_band: bool) -> None:
    """Puts a short legend where the curves leave room, and a long one below all panels."""
    texts = [textwrap.fill(label, _LEGEND_WIDTH) for label in labels]
    look: dict[str, Any] = {"frameon": False, "fontsize": "small", "title_fontsize": "small"}
    if has_band:
        look["title"] = "line: mean of the seeds; band: their minimum to maximum"
    num_lines = "\n".join(texts).count("\n") + 1
    if num_lines <= _SHORT_LEGEND[0] and max(map(len, texts)) <= _SHORT_LEGEND[1]:
        legend = axes.legend(axes.get_lines(), texts, loc="best", **look)
    else:
        figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * (num_lines + has_band))
        legend = figure.legend(axes.get_lines(), texts, loc="outside lower left", **look)
    legend.set_alignment("left")
    legend.get_title().set_color(_GRAY)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a $ in a label is a $
