"""`scripts/icons`: the icons of the console as an installed application, drawn from its `icon.svg`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

import multi_agent_mcp.web
from multi_agent_mcp.web.pages import ICONS
from tests.web.browser.conftest import launched

STATIC = Path(multi_agent_mcp.web.__file__).parent / "static"
SAFE = 0.8
"""The share of a maskable icon that no mask cuts off (W3C Web Application Manifest, Icon masks)."""


def drawn() -> Iterator[Path]:
    """Writes the icons; yields the path of each."""
    svg = (STATIC / "icon.svg").read_text(encoding="utf-8")
    with sync_playwright() as playwright:
        browser = launched(playwright)
        for name, size, purpose in ICONS:
            page = browser.new_page(viewport={"width": size, "height": size})
            page.set_content(_page(svg, size, purpose))
            page.screenshot(path=STATIC / name, omit_background=True)
            page.close()
            yield STATIC / name
        browser.close()


def _page(svg: str, size: int, purpose: str) -> str:
    """The page that draws one icon. A maskable icon has no rounded corners and keeps its drawing in the safe area of
    all masks."""
    if purpose != "maskable":
        return f"<style>body {{ margin: 0 }} svg {{ display: block; width: {size}px }}</style>{svg}"
    ground = svg.split('fill="')[1].split('"')[0]
    inner = round(size * SAFE)
    style = f"body {{ margin: 0; height: {size}px; background: {ground}; display: grid; place-content: center }}"
    return f"<style>{style} svg {{ width: {inner}px }}</style>{svg}"


if __name__ == "__main__":
    for icon in drawn():
        sys.stdout.write(f"{icon.name}\n")
