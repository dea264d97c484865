"""The features of this folder. They are read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Action, Command, Endpoint, Feature, Kind

POOL = Feature(
    name="pool",
    switch="pool",
    settings={"pool": ".pool.settings:parse_pool"},
    services={"claims": ".pool.claims:Claims", "claim_rings": ".pool.rings:ClaimRings"},
    on={"task_changed": "claim_rings.look", "waiting": "claim_rings.look"},
    supervised=("claim_rings.look",),
    actions=(Action(90, "claims.offer", "claims.offer"),),
    tools=(".pool.tools:TOOLS",),
)
OFFERS = Kind("offers", layout=".pool.offer:offers")
WATCHES = Kind("watches", "wch", "watch", layout=".pool.watches:watches")
FREE = Feature(
    name="free",
    kinds=(OFFERS, WATCHES),
    topics={"offers": "messages"},
    services={
        "awake": ".pool.awake:AwakeTime",
        "free": ".pool.free:Free",
        "items": ".pool.items:Items",
        "offers": ".pool.offers:Offers",
        "watches": ".pool.watches:Watches",
    },
    only_where=("offers", "watches"),
    on={"task_changed": "offers.changed", "waiting": "offers.became_free"},
    answers={
        "offer": "offers.send",
        "offer_item": "offers.keep",
        "meant": "free.meant_by",
        "taken": "offers.taken",
        "sleeping": "offers.sleeping",
        "await_idle": "watches.await_idle",
    },
    expires={"offers": "offers.became_free", "watches": "watches.look"},
    commands={
        "when": Command("Tasks", ".pool.commands:when", "Wait until an agent or a task is in a state."),
    },
    options={"send": ("when_idle",), "agent add": ("skills",), "agent set": ("skills",)},
    checks={"pool": ".pool.checks:pool"},
)
RETURNS = Feature(
    name="returns",
    needs="return_minutes",
    services={"returns": ".pool.returns:Returns"},
    on={"looked": "returns.look", "answered": "returns.look"},
    supervised=("returns.look",),
    operations=("returns",),
)
LEASES = Feature(
    name="leases",
    topics={".leases": "leases"},
    services={"leases": ".pool.leases:Leases", "circles": ".pool.circles:Circles"},
    only_where=(".leases", "questions", "watches"),
    on={"task_changed": "circles.look", "waiting": "circles.look"},
    endpoints=(
        Endpoint("GET", "/leases", ".pool.views:of_console"),
        Endpoint("POST", "/leases/{pid}/end", ".pool.views:end"),
    ),
    checks={"leases": ".pool.checks:leases"},
    attention={"circle": 75, "lease": 185},
    items=(".pool.views:items",),
    commands={
        "lease": Command("Tasks", ".pool.commands:lease", "Run a command once it is its turn."),
        "leases": Command("Looking", ".pool.commands:leases", "List which commands have a lease, or wait for one."),
    },
    watched=(".pool.commands:watched",),
)
