"""The console's pages: one template each, with texts of the catalogue; their data comes from the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from multi_agent_mcp.domain.message import MESSAGE_PRIORITIES
from multi_agent_mcp.domain.task import TASK_PRIORITIES, TASK_STATUSES
from multi_agent_mcp.domain.text import HIDDEN
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.texts import CONSOLE, catalogue
from multi_agent_mcp.web.api.overview import homes
from multi_agent_mcp.web.security import Auth
from multi_agent_mcp.wiring import Services

PAGES = (
    "board",
    "agents",
    "machines",
    "files",
    "messages",
    "conversations",
    "timeline",
    "executions",
    "stats",
    "health",
    "search",
)
SECTIONS = {"agent": "agents"}
"""The page of `PAGES` to which one that is not in the side bar belongs."""
ICONS = (
    ("icon-192.png", 192, "any"),
    ("icon-512.png", 512, "any"),
    ("icon-maskable-192.png", 192, "maskable"),
    ("icon-maskable-512.png", 512, "maskable"),
)
"""The file, size in pixels and purpose of each icon that `scripts/icons` draws."""
MANIFEST = "application/manifest+json"
SHARED = ("reason.", "attention.kind.", "found.", "up.dialog:", "type.", "action.", "checked.")
"""Prefixes of the people's texts that pages choose from by data."""


def page_routes(services: Services, access: Auth, now: Callable[[], dict[str, Any]]) -> list[Route]:
    """The routes: `/` is the board, every other page has its name as path, and an agent's own page is below that of
    all. `now` returns the current event and agent. The page of machines exists only in shared sessions."""
    manifest = Route("/manifest.webmanifest", lambda _: JSONResponse(_manifest(services), media_type=MANIFEST))
    return [
        manifest,
        *(
            Route("/" if name == "board" else f"/{name}", _page(name, services, access, now))
            for name in _page_names(services)
        ),
        Route("/agents/{agent_id}", _page("agent", services, access, now)),
    ]


def _page_names(services: Services) -> list[str]:
    on = set(services.session.features.each("pages"))
    return [name for name in PAGES if name in on and (name != "machines" or services.machine is not None)]


def _manifest(services: Services) -> dict[str, Any]:
    """The manifest with which browsers install the console as an application (W3C Web Application Manifest)."""
    return {
        "id": "/",
        "name": f"{services.session.name} · multi-agent-mcp",
        "short_name": services.session.name,
        "lang": services.texts.language,
        "start_url": "/",
        "display": "standalone",
        "background_color": "#f4f5f8",
        "theme_color": "#4353d6",
        "icons": [
            {"src": "/static/icon.svg", "sizes": "any", "type": "image/svg+xml", "purpose": "any"},
            *(
                {"src": f"/static/{name}", "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
                for name, size, purpose in ICONS
            ),
        ],
    }


def _page(
    name: str, services: Services, access: Auth, now: Callable[[], dict[str, Any]]
) -> Callable[[Request], Response]:
    def show(request: Request) -> Response:
        agent_id = request.path_params.get("agent_id")
        agent = services.agents.known().get(agent_id) if agent_id is not None else None
        if agent_id is not None and agent is None:
            raise HTTPException(404)
        cookie = request.cookies[access.cookie_name]
        texts, people = catalogue(services.texts.language, CONSOLE), services.people
        shared = {key: people(key) for key in sorted(people.keys()) if key.startswith(SHARED)}
        facts = {
            "page": name,
            "agent": agent_id,
            "removed": agent is not None and agent.removed,
            "language": texts.language,
            "session": services.session.name,
            "csrf": access.csrf_token(cookie),
            **now(),
            "statuses": TASK_STATUSES,
            "priorities": TASK_PRIORITIES,
            "messagePriorities": MESSAGE_PRIORITIES,
            "hidden": HIDDEN,
            "days": days_of(services.session.zone, services.clock()),
            "answers": services.settings.console_answers,
            "features": [feature.name for feature in services.session.features],
            "acts": services.agents.elsewhere(services.agents.get(now()["me"])) is None,
            **homes(services),
            "texts": {key: texts(key) for key in sorted(texts.keys())} | shared,
        }
        frame = {
            "title": agent_id or texts(f"page.{name}"),
            "section": SECTIONS.get(name),
            "pages": _page_names(services),
        }
        return HTMLResponse(rendered(name, t=texts, facts=_embedded(facts), **frame, **facts))

    return show


def days_of(zone: tzinfo, now: datetime) -> dict[str, Any]:
    """The zone in which days begin wherever something is counted by the day: its name, and its minutes ahead of UTC."""
    here = in_zone(now, zone)
    return {"zone": here.tzname() or "UTC", "ahead": (here.utcoffset() or timedelta()) // timedelta(minutes=1)}


def rendered(name: str, **values: Any) -> str:
    return _environment().get_template(f"{name}.html").render(**values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("multi_agent_mcp.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def _embedded(facts: dict[str, Any]) -> str:
    """JSON for use inside a `<script>` element, escaped so that nothing can end the element (HTML 4.12.1.3)."""
    text = json.dumps(facts, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
