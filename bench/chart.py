"""A bar chart of multiples of native time, as SVG: one bar per row on a logarithmic scale, the aim as a mark."""

import math
from xml.sax.saxutils import escape

LEFT, WIDTH, LINE = 170, 560, 17
LOW, HIGH = 0.02, 20.0


def place(x):
    x = min(max(x, LOW), HIGH)
    return LEFT + WIDTH * (math.log(x) - math.log(LOW)) / (math.log(HIGH) - math.log(LOW))


def draw(medians, column, aims):
    rows = [(r, m[column] / m["native"]) for r, m in medians.items() if column in m and "native" in m]
    height = LINE * len(rows) + 50
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 70}" height="{height}" '
        f'font-family="sans-serif" font-size="11">',
        f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="14">{escape(column)}: time as a multiple '
        f"of native (left is faster); black marks are the aims</text>",
    ]
    for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10):
        x, heavy = place(tick), tick == 1
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="22" y2="{height - 22}" stroke="{"#444" if heavy else "#ccc"}"/>'
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>'
        )
    for i, (row, x) in enumerate(rows):
        y, one = 26 + LINE * i, place(1)
        a, b = sorted((one, place(x)))
        aim = aims.get(row)
        colour = "#4a8" if x <= (aim or 1) else "#c75"
        out.append(
            f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(row)}</text>'
            f'<rect x="{a:.1f}" y="{y + 2}" width="{max(b - a, 1):.1f}" height="{LINE - 5}" fill="{colour}"/>'
            f'<text x="{max(b, one) + 6:.1f}" y="{y + 11}">{x:.2f}</text>'
        )
        if aim:
            out.append(
                f'<line x1="{place(aim):.1f}" x2="{place(aim):.1f}" y1="{y}" y2="{y + LINE - 1}" stroke="black" '
                f'stroke-width="2"/>'
            )
    return "\n".join(out) + "\n</svg>\n"
