"""The curve of words against fast memory as a terminal plot, SVG, HTML (interactive, self-contained) or PNG.

Both axes are logarithmic. Solid lines are schedules, dashed lines bounds by class, dotted verticals levels of devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError
from wattention.iocomplexity.planning.curve import Curve, Line
from wattention.report.units import format_value

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
BOUND_COLOURS = {"any": "#999999", "recompute": "#555555", "once": "#000000"}
LETTERS = "ABCDEFGHIJKLMNPQRSTUVWXYZ"
FORMATS = (".svg", ".html", ".png")


def save_figure(curve: Curve, path: Path) -> None:
    """Write the figure; the suffix chooses the format.

    Raises:
        UserError: another suffix, or PNG where no renderer for it is installed.
    """
    if path.suffix == ".svg":
        path.write_text(to_svg(curve), encoding="utf-8")
    elif path.suffix == ".html":
        path.write_text(_plotly(curve).to_html(include_plotlyjs=True, full_html=True), encoding="utf-8")
    elif path.suffix == ".png":
        path.write_bytes(_png(curve))
    else:
        raise UserError("format of a figure", got=path.name, wanted=" or ".join(FORMATS))


def title_of(curve: Curve) -> str:
    """The heading of the figure."""
    p = curve.problem
    return f"{curve.direction} attention, {p.query_tokens} tokens, head dim {p.key_dim}, {p.mask.name} mask"


# --- axes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Axes:
    """A logarithmic frame: data to the unit square."""

    x: tuple[float, float]
    y: tuple[float, float]

    @classmethod
    def of(cls, curve: Curve) -> _Axes:
        seen = [w for line in (curve.best, *curve.bounds) for w in line.words if w]
        return cls(x=(curve.fast_words[0], curve.fast_words[-1]), y=(min(seen) / 1.5, max(seen) * 1.5))

    def right(self, fast_words: float) -> float:
        """0 at the left edge, 1 at the right."""
        return math.log(fast_words / self.x[0]) / math.log(self.x[1] / self.x[0])

    def up(self, words: float) -> float:
        """0 at the bottom, 1 at the top."""
        return math.log(words / self.y[0]) / math.log(self.y[1] / self.y[0])

    @staticmethod
    def decades(ends: tuple[float, float]) -> list[float]:
        """Powers of ten within the range."""
        first, last = math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1]))
        return [10.0**e for e in range(first, last + 1)]


# --- terminal --------------------------------------------------------------------------------------------------------


def to_text(curve: Curve, *, width: int = 100, height: int = 24) -> str:
    """A plot of characters: the best schedule by letter, bounds as ``.`` (recompute) and ``o`` (once)."""
    axes = _Axes.of(curve)
    grid = [[" "] * width for _ in range(height)]

    def put(fast_words: float, words: float, mark: str) -> None:
        column, row = round(axes.right(fast_words) * (width - 1)), round(axes.up(words) * (height - 1))
        if 0 <= row < height and 0 <= column < width:
            grid[height - 1 - row][column] = mark

    letters = {name: LETTERS[i % len(LETTERS)] for i, name in enumerate(dict.fromkeys(curve.winners))}
    for line, mark in zip(curve.bounds, ("_", ".", "o"), strict=True):
        for fast_words, words in zip(curve.fast_words, line.words, strict=True):
            if words:
                put(fast_words, words, mark)
    for fast_words, words, winner in zip(curve.fast_words, curve.best.words, curve.winners, strict=True):
        if words:
            put(fast_words, words, letters[winner])
    label_width = 9
    lines = [title_of(curve)]
    for row, cells in enumerate(grid):
        label = ""
        if row in (0, height - 1):
            label = format_value(axes.y[1] if row == 0 else axes.y[0], "word").removesuffix("word")
        lines.append(f"{label:>{label_width}} |{''.join(cells).rstrip()}")
    ends = [format_value(end, "word") for end in axes.x]
    lines.append(" " * label_width + " +" + "-" * width)
    lines.append(
        " " * (label_width + 2) + ends[0] + "fast memory M".center(width - len(ends[0]) - len(ends[1])) + ends[1]
    )
    lines.append("best schedule: " + "  ".join(f"{letter} {name}" for name, letter in letters.items()))
    lines.append("bounds: _ any algorithm   . recomputation allowed   o every score formed once")
    lines += [f"{c.after} overtakes {c.before} at M = {c.fast_words} words" for c in curve.crossings]
    lines += [f"{mark.label}: M = {mark.fast_words} words" for mark in curve.marks]
    return "\n".join(lines)


# --- SVG -------------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 960, 600
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 220, 40, 60


def to_svg(curve: Curve) -> str:
    """The figure as a small stand-alone SVG."""
    axes = _Axes.of(curve)

    def at(fast_words: float, words: float) -> tuple[float, float]:
        x = _LEFT + axes.right(fast_words) * (_WIDTH - _LEFT - _RIGHT)
        return x, _HEIGHT - _BOTTOM - axes.up(words) * (_HEIGHT - _TOP - _BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title_of(curve))}: words moved against fast memory</text>',
        f'<clipPath id="frame"><rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}"/></clipPath>',
    ]
    out += _svg_grid(axes, at)
    for mark in curve.marks:
        x, _ = at(mark.fast_words, axes.y[0])
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
            'stroke="#888" stroke-dasharray="1 4"/>'
        )
        out.append(
            f'<text transform="translate({x - 3:.1f} {_HEIGHT - _BOTTOM - 6}) rotate(-90)" fill="#555" font-size="10">'
            f"{escape(mark.label)}</text>"
        )
    entries = [(line, COLOURS[i % len(COLOURS)], "") for i, line in enumerate(_drawn(curve))]
    entries += [(line, BOUND_COLOURS[line.name], ' stroke-dasharray="6 4"') for line in curve.bounds]
    for i, (line, colour, dash) in enumerate(entries):
        for part in _runs(curve, line):
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(m, w) for m, w in part))
            out.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"{dash} '
                'clip-path="url(#frame)"/>'
            )
        y = _TOP + 10 + 18 * i
        x = _WIDTH - _RIGHT + 14
        label = f"bound: {line.name}" if dash else line.name
        out.append(f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>')
        out.append(f'<text x="{x + 28}" y="{y + 4}">{escape(label)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _svg_grid(axes: _Axes, at: Any) -> list[str]:
    out = []
    for m in axes.decades(axes.x):
        x, _ = at(m, axes.y[0])
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="#ddd"/>')
        out.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{format_value(m, "word")}</text>'
        )
    for words in axes.decades(axes.y):
        _, y = at(axes.x[0], words)
        out.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{format_value(words, "word")}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    out.append(f'<text x="{middle}" y="{_HEIGHT - 16}" text-anchor="middle">fast memory M</text>')
    return out


def _drawn(curve: Curve) -> list[Line]:
    """Schedules that win somewhere come first; the others stay, for the comparison is the point."""
    winners = list(dict.fromkeys(curve.winners))
    return sorted(curve.schedules, key=lambda line: (line.name not in winners, line.name))


def _runs(curve: Curve, line: Line) -> list[list[tuple[float, float]]]:
    """The unbroken parts of a line."""
    parts: list[list[tuple[float, float]]] = [[]]
    for fast_words, words in zip(curve.fast_words, line.words, strict=True):
        if words:
            parts[-1].append((fast_words, words))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if len(part) > 1]


# --- HTML and PNG ----------------------------------------------------------------------------------------------------


def _plotly(curve: Curve) -> Any:
    go: Any = import_module("plotly.graph_objects")
    figure = go.Figure()
    for i, line in enumerate(_drawn(curve)):
        colour = COLOURS[i % len(COLOURS)]
        figure.add_scatter(x=curve.fast_words, y=line.words, name=line.name, mode="lines", line={"color": colour})
    for line in curve.bounds:
        style = {"color": BOUND_COLOURS[line.name], "dash": "dash"}
        figure.add_scatter(x=curve.fast_words, y=line.words, name=f"bound: {line.name}", mode="lines", line=style)
    for mark in curve.marks:
        figure.add_vline(x=mark.fast_words, line={"dash": "dot", "color": "#888", "width": 1})
        place = {"x": math.log10(mark.fast_words), "y": 0.02, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text=mark.label, textangle=-90, showarrow=False, xanchor="right", **place)
    figure.update_layout(title=title_of(curve), template="plotly_white")
    figure.update_xaxes(type="log", title="fast memory M (words)")
    figure.update_yaxes(type="log", title="words moved")
    return figure


def _png(curve: Curve) -> bytes:
    try:
        import_module("kaleido")  # plotly finds it by itself; this asks whether it is there
        return bytes(_plotly(curve).to_image(format="png", width=1200, height=800))
    except (ImportError, RuntimeError, ValueError) as error:
        raise UserError(
            "cannot write a PNG here",
            got=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}",
            wanted="the package kaleido and a Chrome browser, which plotly renders PNG with",
            do="write .svg or .html instead",
        ) from error
