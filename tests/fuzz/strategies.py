"""Strategies for inputs: arbitrary text, YAML with human errors and damage, JSON, arguments by a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.store.test_codec import NASTY

TEXT = st.one_of(
    st.sampled_from(NASTY), st.text(max_size=60), st.text(alphabet="-\n\r \t\x85\u2028\ufeff:#'\"a", max_size=20)
)
SURROGATES = st.sampled_from(["\ud800", "a\udfffb"])
IDS = st.sampled_from(
    ["owner", "admin", "worker-a", "worker-b", "nobody", "../x", "", "tsk_0123456789ab", "cnv_0123456789ab"]
)

SCALARS = [
    *("09", "0777", "0o17", "0x1F", "1_000", "12:30:45", "+7", "-0", "9" * 5000, "1" * 400),
    *("1.5", "1.5e400", ".inf", "-.inf", ".nan", "nan", "inf", "1e3"),
    *("null", "~", "''", "yes", "true", "[]", "{}", "[1, [2, {a: b}]]", "{a: 1, 2: [x]}", "- x"),
    *(
        "2026-11-21",
        "2026-11-21T10:00:00",
        "'9999-12-31T23:59:59.999999+00:00'",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31",
    ),
    *("'2026-11-21T21:46:01.123456Z'", "2026-99-99", "24:00", "!!timestamp 2026-11-21", "!!timestamp 2026-99-99"),
    *(
        "!!binary aGVsbG8=",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!pairs [a: 1]",
        "!!float x",
        "!!int x",
        "!!bool x",
        "!!str 1",
    ),
    *(
        "!!python/none",
        "!foo bar",
        "&a [*a]",
        "*b",
        "<<: {a: b}",
        '"\\ud800"',
        '"\\x00\\u2028"',
        "|\n  block\n",
        ">\n  folded\n",
    ),
    *(
        "owner",
        "admin",
        "worker-a",
        "nobody",
        "../../etc",
        "todo",
        "in_progress",
        "blocked",
        "interrupt",
        "conversation",
    ),
    *("tsk_0123456789ab", "cnv_0123456789ab", "dlg_0123456789ab", "ntf_0123456789ab", "exec_0123456789ab", "task"),
]
YAML_VALUES = st.one_of(
    st.sampled_from(SCALARS),
    st.text(alphabet=" \t:#-[]{}\"'&*!|>%@`,?0123456789abcTZ.+\n", max_size=24),
    st.text(max_size=24),
)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(10**300, 10**310),
        st.floats(),
        TEXT,
        IDS,
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@st.composite
def headers(draw: st.DrawFn, keys: Sequence[str]) -> str:
    """Lines `key: value` with known and unknown keys, as a hand would write them."""
    names = st.one_of(st.sampled_from(list(keys)), st.sampled_from(["extra", "x-y", "1", "null", "? a", "'k'"]))
    lines = draw(st.lists(st.tuples(names, YAML_VALUES), max_size=6, unique_by=lambda item: item[0]))
    return "\n".join(f"{name}: {value}" for name, value in lines)


def documents(keys: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Whole files: mostly a header and a body, now and then anything."""
    written = st.builds(
        lambda header, body: f"---\n{header}\n---\n\n{body}".encode(errors="replace"), headers(keys), TEXT
    )
    return st.one_of(
        written,
        written,
        written,
        st.binary(max_size=80),
        st.builds(lambda tail: b"---\n" + tail, st.binary(max_size=60)),
    )


def by_schema(schema: Mapping[str, Any], defs: Mapping[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """Values that a JSON schema of ours asks for."""
    defs = defs or schema.get("$defs", {})
    if "$ref" in schema:
        return by_schema(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([by_schema(option, defs) for option in schema["anyOf"]])
    if schema.get("type") == "array":
        return st.lists(by_schema(schema.get("items", {}), defs), max_size=3)
    if schema.get("type") == "object" and "properties" in schema:
        return _objects(schema, defs)
    return PRIMITIVES.get(schema.get("type", ""), JSON)


def _objects(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = {name: by_schema(value, defs) for name, value in schema["properties"].items()}
    required = {name: value for name, value in properties.items() if name in schema.get("required", ())}
    optional = {name: value for name, value in properties.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


PRIMITIVES: Mapping[str, st.SearchStrategy[Any]] = {
    "string": st.one_of(TEXT, IDS, IDS, SURROGATES),
    "integer": st.one_of(st.integers(-1, 501), st.integers()),
    "number": st.floats(-1, 0),  # get_next_action would wait for more
    "boolean": st.booleans(),
    "object": st.dictionaries(TEXT, JSON, max_size=3),
    "null": st.none(),
}
