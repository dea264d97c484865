"""Searching the session's files for words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.services.search.search import SearchQuery, parts

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest


def find(call: ApiRequest) -> dict[str, Any]:
    """The newest results for the query `?q=` (docs/protocol.md, Search), and the words of the query."""
    query = SearchQuery.parse(parts(call.parameter("q") or ""))
    results = call.services.search.find(query, call.limit)
    return {"results": [found.as_answer() for found in results.found], "more": results.more, "words": query.words}
