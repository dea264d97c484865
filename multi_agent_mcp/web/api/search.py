"""Finding words in everything the session holds."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.services.search.search import SearchQuery, parts
from multi_agent_mcp.web.request import ApiRequest


def find(call: ApiRequest) -> dict[str, Any]:
    """The newest things with all the words of `?q=` (docs/protocol.md, Search), and the words themselves."""
    query = SearchQuery.parse(parts(call.parameter("q") or ""))
    results = call.services.search.find(query, call.limit)
    return {"results": [found.as_answer() for found in results.found], "more": results.more, "words": query.words}
