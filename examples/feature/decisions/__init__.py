"""What agents have decided by themselves, for their human to look at: an example of a feature in a package of its own.

This module is imported wherever the feature is on, at every start, so it holds the record and nothing else.
"""

from multi_agent_mcp.features import Command, Feature, Kind

KIND = Kind(
    directory="decisions",
    prefix="dcn",
    name="decision",
    is_searched=True,
    entity="decisions.rules:Decision",
    follows="decisions.rules:FOLLOWING",
)

DECISIONS = Feature(
    name="decisions",
    optional=True,
    settings={"decisions_shown": "decisions.rules:parse_shown"},
    kinds=(KIND,),
    tools=("decisions.doors:TOOLS",),
    commands={"decisions": Command("Looking", "decisions.doors:decisions", "What agents have decided by themselves.")},
    checks={"decisions": "decisions.rules:check"},
    attention={"decision": 125},
    items=("decisions.rules:items",),
    briefing=("decisions.rules:section",),
    texts="decisions.texts:TEXTS",
)
