"""The features of this folder. They are read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Command, Feature, Kind

POOL = Feature(
    name="pool",
    switch="pool",
    services={"claims": ".pool.claims:Claims", "claim_rings": ".pool.rings:ClaimRings"},
    on={"task_changed": "claim_rings.look", "offered": "claim_rings.look"},
    supervised=("claim_rings.look",),
    answers={"claimable": "claims.offered"},
    tools=(".pool.tools:TOOLS",),
)
OFFERS = Kind("offers", layout=".pool.offer:offers")
WATCHES = Kind("watches", "wch", "watch", layout=".pool.watches:watches")
FREE = Feature(
    name="free",
    kinds=(OFFERS, WATCHES),
    topics={"offers": "messages"},
    services={
        "free": ".pool.free:Free",
        "items": ".pool.items:Items",
        "offers": ".pool.offers:Offers",
        "watches": ".pool.watches:Watches",
    },
    on={"task_changed": "offers.changed", "offered": "offers.became_free"},
    answers={
        "offer": "offers.send",
        "offer_item": "offers.keep",
        "meant": "free.meant_by",
        "taken": "offers.taken",
        "await_idle": "watches.await_idle",
    },
    expires={"offers": "offers.became_free", "watches": "watches.look"},
    commands={
        "when": Command("Tasks", ".pool.commands:when", "Wait until an agent or a task is in a state."),
    },
    options={"send": ("when_idle",)},
)
RETURNS = Feature(
    name="returns",
    needs="return_minutes",
    services={"returns": ".pool.returns:Returns"},
    on={"looked": "returns.look"},
    supervised=("returns.look",),
    operations=("returns",),
)
LEASES = Feature(
    name="leases",
    services={"leases": ".pool.leases:Leases"},
    commands={
        "lease": Command("Tasks", ".pool.commands:lease", "Run a command once it is its turn."),
        "leases": Command("Looking", ".pool.commands:leases", "List which commands have a lease, or wait for one."),
    },
    watched=(".pool.commands:watched",),
)
