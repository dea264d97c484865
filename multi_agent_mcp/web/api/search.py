"""Searching the session's files for words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.services.search import SearchQuery, parts

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest


PATIENCE_SECONDS = 1.0
"""How long a request waits for the index."""


def find(call: ApiRequest) -> dict[str, Any]:
    """The newest results for the query `?q=` (docs/protocol.md, Search), and the words of the query. While the index is
    made, which the first search starts, there are none but `reading`, with how many files were read: ask again."""
    query = SearchQuery.parse(parts(call.parameter("q") or ""))
    query.require_something()
    if (reading := call.services.search.prepared(PATIENCE_SECONDS)) is not None:
        return {"results": [], "more": False, "words": query.words, "reading": reading.as_answer()}
    results = call.services.search.find(query, call.limit)
    return {"results": [found.as_answer() for found in results.found], "more": results.more, "words": query.words}
