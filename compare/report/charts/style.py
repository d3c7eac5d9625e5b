"""Colours, marks and the saving of a picture.

A model has the same colour and mark everywhere. The three hues can be distinguished by people with
red-green colour blindness, and by their lightness. In the SVG each colour is a variable, with another value
for dark screens.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK, FAINT, LINE = "#1b1f24", "#5c6570", "#d4d9df"
COLOURS = {"independent": "#0072b2", "push-parallel": "#b87a00", "push-sequential": "#882255"}
MARKS = {"independent": "o", "push-parallel": "s", "push-sequential": "^"}
DARK = {
    INK: "#e8ebef",
    FAINT: "#a3adb8",
    LINE: "#3a424c",
    "#0072b2": "#56b4e9",
    "#b87a00": "#e9b44c",
    "#882255": "#ea8fb4",
}
WIDE_IN, NARROW_IN = 8.6, 3.7
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and uses the reader's fonts
    "svg.hashsalt": "landline",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.color": LINE,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.solid_capstyle": "butt",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in the page: two SVGs as data URLs, their sizes in CSS pixels, and a text alternative."""

    name: str
    wide: str
    narrow: str
    wide_size: tuple[int, int]
    alt: str


def picture(name: str, alt: str, draw: Callable[[float], Figure], directory: Path | None = None) -> Picture:
    """Draws a picture for a wide and a narrow page; ``draw`` gets the width in inches. The PNG goes into
    the directory.
    """
    with mpl.rc_context(_SETTINGS):  # type: ignore[arg-type]
        wide, narrow = draw(WIDE_IN), draw(NARROW_IN)
        if directory:
            wide.savefig(directory / f"{name}.png", dpi=160, facecolor="white")
        height = float(wide.get_size_inches()[1])
        size = round(WIDE_IN * 96), round(height * 96)
        return Picture(name, _address(wide), _address(narrow), size, alt)


def axes_grid(width_in: float, panels: int, height_in: float) -> tuple[Figure, list[Any]]:
    """A figure with this many axes: two per row on a wide page, one per row on a narrow one."""
    columns = 1 if width_in < WIDE_IN else min(2, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width_in, height_in * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = list(grid.flat)
    for spare in axes[panels:]:
        spare.remove()
    return figure, axes[:panels]


def _address(figure: Figure) -> str:
    held = io.StringIO()
    figure.savefig(held, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = held.getvalue()
    names = {colour: f"--c{number}" for number, colour in enumerate(DARK)}
    for colour, name in names.items():
        svg = re.sub(colour, f"var({name})", svg, flags=re.IGNORECASE)
    svg = svg.replace("'sans-serif'", "system-ui, 'DejaVu Sans', sans-serif")
    light = ";".join(f"{name}:{colour}" for colour, name in names.items())
    dark = ";".join(f"{name}:{DARK[colour]}" for colour, name in names.items())
    style = f"<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    svg = re.sub(r"(<svg[^>]*>)", lambda found: found[1] + style, svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)  # a hundredth of a point is finer than any screen
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
