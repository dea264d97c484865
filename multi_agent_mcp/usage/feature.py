"""The feature of this folder. It is read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Command, Feature

LIMITS = ".limits"
"""Where the episodes of usage limits are, below the session's directory."""
LIMIT = f"{LIMITS}/{{agent_id}}.json"
USAGE = Feature(
    name="usage",
    optional=True,
    settings={"usage": ".settings:parse_switch", "on_limit": ".usage.settings:parse_on_limit"},
    of_agents=("usage", "on_limit"),
    services={
        "usage": ".usage.usage:Usage",
        "budgets": ".usage.budgets:Budgets",
        "limits": ".usage.limits:UsageLimits",
        "limited_rings": ".usage.rings:LimitedRings",
        "host_looks": ".usage.host_looks:HostLooks",
        "spending": ".usage.spending:Spending",
    },
    keys={"task": ("usage",)},
    on={"answered": "budgets.look", "heard": "limits.saw_in_event"},
    answers={
        "limit": "limits.limited",
        "is_excused": "limits.excuses",
        "tokens": "spending.tokens",
        "spent_today": "spending.today",
        "usage_rows": "usage.rows",
        "usage_of_task": "usage.of_task",
        "usage_figures": "spending.figures",
        "allow_tokens": "budgets.allow",
    },
    upkeep={LIMIT: "limits.acted"},
    holds={LIMIT: "limited_rings.hold"},
    supervised=("host_looks.look",),
    commands={
        "usage": Command("Looking", ".usage.commands:usage", "Count the tokens that agents and tasks took."),
    },
    checks={"usage": ".usage.views:check"},
    options={"resume": ("tokens",)},
    attention={"budget": 90, "limited": 150},
    items=(".usage.views:limited",),
    briefing=("budgets.section",),
)
