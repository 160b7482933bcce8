"""A chart of what processes held over time, as SVG: no library, no network."""

from html import escape

WIDTH, HEIGHT, LEFT, TOP = 1000, 180, 70, 30
# Points share columns this wide: hours of them would be a file of megabytes.
COLUMN = 3


def columns(line, place):
    """A stroke for each column that has points, from the least to the most of them."""
    spans = {}
    for x, y in (place(*point) for point in line):
        low, high = spans.get(x // COLUMN, (y, y))
        spans[x // COLUMN] = min(low, y), max(high, y)
    # A lone point is seen, too.
    return "".join(f"M{x * COLUMN:.0f} {low - 1:.0f}V{high + 1:.0f}" for x, (low, high) in sorted(spans.items()))


def panel(title, series, top):
    """One row of the chart: `series` is a list of (name, colour, [(seconds, value)])."""
    points = [point for _, _, line in series for point in line]
    if not points:
        return ""
    last = max(x for x, _ in points) or 1
    most = max(y for _, y in points) or 1
    inner = WIDTH - LEFT - 20
    out = [f'<text x="{LEFT}" y="{top + 16}" class="title">{escape(title)}</text>']
    bottom = top + TOP + HEIGHT
    for share in (0, 0.5, 1):
        y = bottom - share * HEIGHT
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share * most:,.0f}</text>')
    out.append(f'<text x="{WIDTH - 20}" y="{bottom + 16}" text-anchor="end">{last / 60:.1f} min</text>')
    for i, (name, colour, line) in enumerate(series):
        strokes = columns(line, lambda x, y: (LEFT + x / last * inner, bottom - y / most * HEIGHT))
        out.append(f'<path d="{strokes}" stroke="{colour}" stroke-width="{COLUMN - 1}"/>'
                   f'<text x="{LEFT + 300 + 160 * i}" y="{top + 16}" fill="{colour}">{escape(name)}</text>')
    return "".join(out)


def draw(path, title, panels):
    """Writes the rows below one another."""
    step = TOP + HEIGHT + 40
    rows = "".join(panel(name, series, 40 + i * step) for i, (name, series) in enumerate(panels))
    height = 60 + step * len(panels)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui,sans-serif" font-size="12">'
        "<style>.grid{stroke:#ccc}.title{font-weight:600}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="white"/><text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>{rows}</svg>\n')
