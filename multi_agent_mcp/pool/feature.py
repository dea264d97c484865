"""The features of this folder. They are read at every start."""

from __future__ import annotations

from multi_agent_mcp.features import Feature, Kind

POOL = Feature(
    name="pool",
    switch="pool",
    services={"claims": ".pool.claims:Claims"},
    answers={"claimable": "claims.offered"},
    tools=(".pool.tools:TOOLS",),
)
OFFERS = Kind("offers", layout=".pool.offer:offers")
FREE = Feature(
    name="free",
    kinds=(OFFERS,),
    topics={"offers": "messages"},
    services={"free": ".pool.offers:Free", "offers": ".pool.offers:Offers"},
    on={"task_changed": "offers.became_free"},
    answers={"offer": "offers.send", "taken": "offers.taken"},
    expires={"offers": "offers.became_free"},
)
RETURNS = Feature(
    name="returns",
    needs="return_minutes",
    services={"returns": ".pool.returns:Returns"},
    on={"looked": "returns.look", "supervised": "returns.look"},
    operations=("returns",),
)
