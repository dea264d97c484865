"""Colours: one hue for each family of messages and each status, tuned for a light and a dark ground (WCAG AA)."""

from __future__ import annotations

from collections.abc import Mapping

FAMILIES: Mapping[str, str] = {
    "task_assign": "assign",
    "task_complete": "done",
    "task_approved": "done",
    "task_failed": "failed",
    "error": "failed",
    "task_progress": "progress",
    "status_update": "progress",
    "request": "ask",
    "response": "ask",
    "conversation": "talk",
    "broadcast": "broadcast",
}
"""Message type → family; what is not named belongs to `other`."""

_INK = {
    "assign": ("#1d4ed8", "#7aa2ff"),
    "done": ("#15803d", "#4ade80"),
    "failed": ("#c2410c", "#fb923c"),
    "progress": ("#64748b", "#94a3b8"),
    "ask": ("#7e22ce", "#c08bff"),
    "talk": ("#0f766e", "#2dd4bf"),
    "broadcast": ("#a16207", "#facc15"),
    "other": ("#475569", "#a8b3c4"),
    "interrupt": ("#dc2626", "#ff5c5c"),
}
_FILL = {
    "backlog": ("#f1f5f9", "#1b2536"),
    "todo": ("#e2e8f0", "#2a364b"),
    "in_progress": ("#93c5fd", "#2f5fb3"),
    "blocked": ("#fca5a5", "#9b2f38"),
    "done": ("#16a34a", "#22a558"),
    "cancelled": ("#94a3b8", "#64748b"),
}
STATUSES = tuple(_FILL)
_GROUND = {
    "ground": ("#ffffff", "#0f1623"),
    "stripe": ("#f6f8fb", "#141d2d"),
    "grid": ("#e3e8ef", "#233047"),
    "rail": ("#cbd5e1", "#3a4a64"),
    "text": ("#0f172a", "#e6ebf4"),
    "muted": ("#556274", "#9fadc3"),
    "edge": ("#64748b", "#8093b0"),
}

FONT = "system-ui, 'Segoe UI', 'Hiragino Sans', 'Noto Sans', 'Noto Sans CJK JP', sans-serif"


def stylesheet(dark: bool | None = None) -> str:
    """The rules of the drawing: light, dark, or (None) as the reader's system prefers. Every name begins with `tl-`,
    so that the drawing can stand in a page."""
    if dark is not None:
        return _rules(dark=dark)
    return f"{_rules(dark=False)}\n@media (prefers-color-scheme: dark) {{\n{_colours(dark=True)}\n}}"


def _rules(*, dark: bool) -> str:
    return "\n".join([_SHAPES, _colours(dark=dark)])


def _colours(*, dark: bool) -> str:
    ground = {name: pair[dark] for name, pair in _GROUND.items()}
    lines = [
        f".tl-ground {{ fill: {ground['ground']} }}",
        f".tl-stripe {{ fill: {ground['stripe']} }}",
        f".tl-grid {{ stroke: {ground['grid']} }}",
        f".tl-rail, .tl-elbow {{ stroke: {ground['rail']} }}",
        f".tl-life {{ fill: {ground['edge']} }}",
        f".tl-frame {{ stroke: {ground['edge']} }}",
        f".tl-text, .tl-name, .tl-label, .tl-heading {{ fill: {ground['text']} }}",
        f".tl-beside {{ stroke: {ground['ground']} }}",
        f".tl-muted, .tl-tick {{ fill: {ground['muted']} }}",
        f".tl-ring {{ fill: {ground['ground']} }}",
        f".tl-sign-word {{ fill: {_INK['interrupt'][dark]} }}",
        f".tl-sign {{ fill: {_INK['interrupt'][dark]}; stroke: {ground['ground']} }}",
        f".tl-strip {{ fill: {_INK['talk'][dark]} }}",
    ]
    lines += [f".tl-ink-{name} {{ stroke: {pair[dark]} }}" for name, pair in _INK.items()]
    lines += [f".tl-dot-{name} {{ fill: {pair[dark]} }}" for name, pair in _INK.items()]
    lines += [f".tl-fill-{name} {{ fill: {pair[dark]} }}" for name, pair in _FILL.items()]
    return "\n".join(lines)


_SHAPES = f"""
.tl-drawing {{ font-family: {FONT}; font-size: 12px }}
.tl-drawing text {{ text-anchor: start }}
.tl-heading {{ font-size: 14px; font-weight: 600 }}
.tl-name {{ font-size: 13px; font-weight: 600 }}
.tl-label, .tl-muted {{ font-size: 11px }}
.tl-drawing .tl-tick {{ font-size: 11px; text-anchor: middle; font-variant-numeric: tabular-nums }}
.tl-beside {{ paint-order: stroke; stroke-width: 3; stroke-opacity: 0.85; stroke-linejoin: round }}
.tl-sign-word {{ font-size: 11px; font-weight: 700 }}
.tl-grid, .tl-elbow {{ stroke-width: 1; fill: none }}
.tl-bar {{ opacity: 0.94 }}
.tl-rail {{ stroke-width: 1; stroke-dasharray: 1 4; stroke-linecap: round }}
.tl-life {{ opacity: 0.55 }}
.tl-strip {{ opacity: 0.16 }}
.tl-frame {{ fill: none; stroke-width: 0.8 }}
.tl-arrow {{ fill: none; stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round }}
.tl-dense .tl-arrow {{ stroke-width: 1; opacity: 0.6 }}
.tl-wait {{ stroke-width: 2.5; opacity: 0.45; stroke-linecap: round }}
.tl-ring {{ stroke-width: 1.6 }}
.tl-halt {{ fill: none; stroke-width: 2.6; stroke-linejoin: round; stroke-linecap: round }}
.tl-sign {{ stroke-width: 1.2 }}
.tl-sign-line {{ fill: none; stroke: #ffffff; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round }}
.tl-mark:hover .tl-arrow, .tl-arrow:hover {{ stroke-width: 3; opacity: 1 }}
""".strip()
