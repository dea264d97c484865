"""The feature of this folder. It is read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Command, Endpoint, Feature

TIMELINE = Feature(
    name="timeline",
    optional=True,
    services={"timeline": ".timeline.building:Timelines", "statistics": ".timeline.statistics:StatisticsOfSession"},
    on={"console_opened": "statistics.prepare"},
    commands={
        "timeline": Command("Looking", ".timeline.commands:timeline", "Show what happened when, or draw it."),
        "stats": Command("Looking", ".timeline.commands:stats", "Count what each agent did, and how long tasks took."),
    },
    phrases={
        "demo": (", beside it a picture of what happened: timeline.svg",),
        "web": (", timeline",),
    },
    endpoints=(
        Endpoint("GET", "/timeline", ".timeline.page:show_timeline"),
        Endpoint("GET", "/stats", ".timeline.page:statistics"),
    ),
    downloads={"/timeline.svg": ".timeline.page:download"},
    styles=(".timeline.page:styles",),
    pages=("timeline", "stats"),
)
