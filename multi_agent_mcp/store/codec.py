"""Entities as text: a YAML header, a line `---`, one blank line, and the body byte for byte (docs/format.md).

python-frontmatter's handler splits the text and leaves the body as it is (its `loads` strips it); libyaml, by PyYAML,
reads and writes every header, with the plain scalars of YAML 1.2.
"""

from __future__ import annotations

import math
import operator
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import date, datetime
from functools import partial
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import yaml
from frontmatter.default_handlers import YAMLHandler
from yaml.constructor import SafeConstructor
from yaml.representer import SafeRepresenter

from multi_agent_mcp.domain.entity import ITEM, Entity, assembled, json_value, plain_value
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import Reason
from multi_agent_mcp.yaml_files import NOT_YAML

E = TypeVar("E", bound=Entity)
T = TypeVar("T")
Emitter: Any = yaml.cyaml.CEmitter if yaml.__with_libyaml__ else yaml.emitter.Emitter  # type: ignore[attr-defined]

_NOTHING: Mapping[str, Any] = {}
"""The empty mapping, shared by thousands of entities, as fields of entities are never changed."""
_BOUNDARY = re.compile(r"---(?<=^---)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
"""A line `---`. Its beginning is tested last: what begins with a text of its own is searched for much faster."""
_VALUES_MAX, _DEPTH_MAX = 200_000, 64  # a header beyond that is an accident or a bomb of aliases
_ALIASED_MAX = 1 << 20  # how many characters aliases may add to a header


_TEXT, _LIST, _MAPPING, _NULL = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map", "null"))
_ENDLESS_LINE = 2**31 - 1  # libyaml folds longer lines, and a folded line is not grep-able


class Parser(yaml.cyaml.CParser if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """libyaml's parser. For a node without a tag PyYAML asks for one, and for its rules by path before and after it.
    `_value` needs neither, so these are the quickest functions that accept the arguments."""

    descend_resolver, ascend_resolver, resolve = operator.is_, tuple, slice


class Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's loader with YAML 1.2's plain scalars: a subject `12:30` or `yes`, written by a person without quotes, is
    a string, not 750 or true. Ordered mappings and pairs are read as lists of mappings; pairs could not be written
    back."""

    yaml_constructors = SafeConstructor.yaml_constructors | dict.fromkeys(
        ("tag:yaml.org,2002:omap", "tag:yaml.org,2002:pairs"), SafeConstructor.construct_yaml_seq
    )

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Returns the tag of a node without one."""
        if kind is not yaml.ScalarNode:
            return _LIST if kind is yaml.SequenceNode else _MAPPING
        return _read_plain(value)[0] if implicit[0] else _TEXT


def _read_plain(value: str) -> tuple[str, Any]:
    """Returns the tag of a plain scalar, and what it says."""
    for tag, form, read in _forms.get(value[:1], ()):
        if form.match(value):
            return tag, read(value)
    return _TEXT, value


_forms: dict[str, list[tuple[str, re.Pattern[str], Callable[[str], Any]]]] = {}
"""The tags and forms of plain scalars that are no texts, and how they are read, by the first character."""


class Known(dict[Any, T]):
    """The values of scalars that were read before: most keys and words of a header are the same in every file."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, value: Any) -> T:
        found = self._make(value)
        if value is None or (len(value) <= _REMEMBERED_LENGTH and len(self) < _REMEMBERED_MAX):
            self[value] = found
        return found


_REMEMBERED_MAX, _REMEMBERED_LENGTH = 2_000, 32
_plain: Known[Any] = Known(lambda value: _read_plain(value)[1])


class Representer(SafeRepresenter):
    """Makes nodes of the values that are neither texts nor lists or mappings."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML asks this about every value
        return True


def _scalar(tag: str, value: str, style: str | None = None) -> yaml.ScalarEvent:
    """Returns the event of a scalar. It is written without quotes or tag only if both versions of YAML read it as what
    it is: PyYAML's own rules for numbers are not the parser's. Values that the parser recognises only by tag (a date,
    an infinity in a user's own key) are written with the tag."""
    is_text = tag == _TEXT
    is_plain = tag == _read_plain(value)[0] == _older_rules.resolve(yaml.ScalarNode, value, (True, False))
    return yaml.ScalarEvent(None, None if is_text else tag, (is_plain, is_text), value, style=style)


def _add(events: list[yaml.Event], value: Any) -> None:
    """Adds the events of a value, in block style and without anchors, as `&id001` is useless in a task's history.
    PyYAML's way to texts, lists and mappings of them, by nodes, takes three times as long."""
    kind = type(value)
    if kind is str or value is None:
        events.append(_words[value])
    elif kind is list or kind is dict:
        events.append(_LIST_BEGINS if kind is list else _MAPPING_BEGINS)
        for item in value if kind is list else chain.from_iterable(value.items()):
            if type(item) is str or item is None:  # as nearly all are
                events.append(_words[item])
            else:
                _add(events, item)
        events.append(_LIST_ENDS if kind is list else _MAPPING_ENDS)
    else:
        _add_node(events, _representer.represent_data(value))


def _add_node(events: list[yaml.Event], node: yaml.Node) -> None:
    if type(node) is yaml.ScalarNode:
        events.append(_scalar(node.tag, node.value, node.style))
    elif type(node) is yaml.SequenceNode:
        events.append(yaml.SequenceStartEvent(None, node.tag, node.tag == _LIST, flow_style=False))
        for item in node.value:
            _add_node(events, item)
        events.append(_LIST_ENDS)
    else:
        events.append(yaml.MappingStartEvent(None, node.tag, node.tag == _MAPPING, flow_style=False))
        for item in chain.from_iterable(node.value):
            _add_node(events, item)
        events.append(_MAPPING_ENDS)


_read_as: tuple[tuple[str, str, list[str], Callable[[str], Any]], ...] = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], lambda _: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), lambda value: value in ("true", "True", "TRUE")),
    # `0042` is a string: PyYAML would read it as octal. So are numbers with more digits than Python converts.
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,4299})", list("-+0123456789"), int),
    ("float", r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?", list("-+0123456789"), float),
)
for _tag, _pattern, _first, _read in _read_as:
    _form = f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _read
    for _character in _first:
        _forms.setdefault(_character, []).append(_form)
_representer = Representer(default_flow_style=False, sort_keys=False)
_older_rules: Any = yaml.resolver.Resolver()
"""PyYAML's rules for plain scalars, which are YAML 1.1's."""

# The events that return in every header, made once: libyaml only reads them.
_words: Known[yaml.Event] = Known(lambda value: _scalar(_NULL, "null") if value is None else _scalar(_TEXT, value))
_BEGIN: list[yaml.Event] = [yaml.StreamStartEvent(), yaml.DocumentStartEvent(explicit=False)]
_END: list[yaml.Event] = [yaml.DocumentEndEvent(explicit=False), yaml.StreamEndEvent()]
_LIST_BEGINS = yaml.SequenceStartEvent(None, None, True, flow_style=False)
_MAPPING_BEGINS = yaml.MappingStartEvent(None, None, True, flow_style=False)
_LIST_ENDS, _MAPPING_ENDS = yaml.SequenceEndEvent(), yaml.MappingEndEvent()


class Unreadable(Exception):
    """Raised for a file that cannot be read at all; the reason is stored beside it in the quarantine."""

    def __init__(self, key: str, /, **values: object) -> None:
        self.reason = Reason(key, **values)
        super().__init__(self.reason)


class Document(NamedTuple):
    header: Mapping[str, Any]
    body: str


class Header(YAMLHandler):
    """The header's text: found, loaded and exported."""

    def load(self, fm: str, **_: object) -> Any:
        """Returns the value of a YAML document. Raises `Unreadable`."""
        try:
            if "&" in fm:  # perhaps an anchor
                raise _Unusual
            node = Parser(fm).get_single_node()
            value = None if node is None else _value(node)
            if len(fm) > _VALUES_MAX:
                require_tree(value)
        except _Unusual:
            value = Loader(fm).get_single_data()
            require_tree(value, len(fm) + _ALIASED_MAX)
        return {str(key): item for key, item in value.items()} if isinstance(value, dict) else value

    def export(self, metadata: Mapping[str, object], **_: object) -> str:
        events = [*_BEGIN]
        _add(events, {**metadata})
        text: str = yaml.emit([*events, *_END], Dumper=Emitter, width=_ENDLESS_LINE, allow_unicode=True)
        return text.removesuffix("\n")


class _Unusual(Exception):
    """Raised for a document with tags, anchors, or keys that are no texts."""


def _value(node: yaml.Node, depth: int = 0) -> Any:
    """Returns the value of a node of `Parser`, whose constructors take as long as libyaml. Raises `_Unusual`, and
    `Unreadable` for one that is too deep to be written again."""
    if type(node.tag) is str:
        raise _Unusual
    if type(node) is yaml.ScalarNode:
        return node.value if node.style else _plain[node.value]
    if depth > _DEPTH_MAX:
        raise Unreadable("front_matter_too_deep")
    if type(node) is yaml.SequenceNode:
        return [_value(item, depth + 1) for item in node.value]
    values = {}
    for key, item in node.value:
        name, text = key.value, item.value
        if type(key.tag) is str or type(name) is not str or type(_plain[name]) is not str:
            raise _Unusual
        is_text = type(text) is str and (item.style or text[:1] not in _forms) and type(item.tag) is slice
        values[name] = text if is_text else _value(item, depth + 1)
    return values


_header = Header(fm_boundary=_BOUNDARY)


def parse(data: bytes) -> Document:
    """Splits a file into header and body. Raises `Unreadable`."""
    try:
        text = data.removeprefix(BOM_UTF8).decode()  # the codec `utf-8-sig` takes five times as long
    except UnicodeDecodeError as error:
        raise Unreadable("no_utf8_at", byte=error.start) from error
    if not _header.detect(text):
        raise Unreadable("no_front_matter")
    try:
        header_text, body = _header.split(text)
    except ValueError as error:
        raise Unreadable("front_matter_open") from error
    return Document(_load(header_text), body[1:] if body[:1] == "\n" else body.removeprefix("\r\n"))


def _load(header_text: str) -> Mapping[str, Any]:
    try:
        header = _header.load(header_text)
    except NOT_YAML as error:
        raise Unreadable("front_matter_yaml", problem=" ".join(str(error).split())[:200]) from error
    if header is not None and not isinstance(header, dict):
        raise Unreadable("front_matter_no_mapping")
    return header or {}  # a header without keys is one in which each has its default


def require_tree(header: Any, characters: float = math.inf) -> None:
    """Raises `Unreadable` for a header that is too deep or large to be written again, as with recursive aliases, or
    has texts of more characters."""
    pending, visited = [(header, 0)], 0
    while pending:
        value, depth = pending.pop()
        visited += 1
        characters -= len(value) if isinstance(value, (str, bytes)) else 0
        if depth > _DEPTH_MAX or visited > _VALUES_MAX or characters < 0:
            raise Unreadable("front_matter_too_deep")
        if isinstance(value, dict):
            characters -= sum(len(key) for key in value if isinstance(key, str))
            pending += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, (list, tuple)):
            pending += [(item, depth + 1) for item in value]


def render(document: Document) -> bytes:
    """Returns the file's bytes. Raises ValueError for a lone surrogate, which UTF-8 cannot represent."""
    return f"---\n{_header.export(document.header)}\n---\n\n{document.body}".encode()


class Codec(Generic[E]):
    """Encodes and decodes one entity type. The fields are the keys, in order; a field's type decides how it is read."""

    def __init__(self, entity_type: type[E]) -> None:
        self.entity_type = entity_type
        self.body = entity_type.BODY
        hints = get_type_hints(entity_type)
        specs = [spec for spec in fields(entity_type) if spec.name not in ("extra", self.body)]
        self._readers = {spec.name: _reader(hints[spec.name], spec.metadata.get(ITEM)) for spec in specs}
        self._writers = {spec.name: _WRITERS.get(_kind(hints[spec.name]), plain_value) for spec in specs}
        self._settle = getattr(entity_type, "__post_init__", None)
        self._names = {spec.name for spec in fields(entity_type)}
        self._defaults = {spec.name: _default(spec) for spec in fields(entity_type) if not _is_required(spec)}

    def encode(self, entity: E) -> bytes:
        left_out, header = entity.LEFT_OUT, {}
        for name, write in self._writers.items():
            if (value := getattr(entity, name)) is not None or name not in left_out:
                header[name] = value if value is None or write is None else write(value)
        body = getattr(entity, self.body) if self.body else ""
        return render(Document({**header, **entity.extra}, body))

    def decode(self, data: bytes, **fallback: Any) -> E:
        """Decodes leniently: a missing or invalid value is taken from `fallback`, else the default. Raises
        `Unreadable`, and TypeError for a required field without any value."""
        header, body = parse(data)
        readers = self._readers
        values = self._defaults | {name: value for name, value in fallback.items() if name in readers}
        extra = {}
        for name, said in header.items():
            if (read := readers.get(name)) is None:
                extra[name] = said
            elif (
                said is not None
                and (value := said if read is _read_text and type(said) is str else read(said)) is not None
            ):
                values[name] = value
        values["extra"] = extra or _NOTHING
        if self.body:
            values[self.body] = body
        if len(values) < len(self._names):
            raise TypeError(f"{self.entity_type.__name__} without {', '.join(self._names - values.keys())}")
        entity = assembled(self.entity_type, values)
        if self._settle is not None:
            self._settle(entity)
        return entity


def _is_required(spec: Field[Any]) -> bool:
    return spec.default is MISSING and spec.default_factory is MISSING


def _default(spec: Field[Any]) -> Any:
    """Returns the default of a field; one object serves all entities, as fields are never changed."""
    return spec.default if spec.default_factory is MISSING else spec.default_factory()


def as_text(entity: Entity) -> str:
    """Returns the text of an entity's file, to be embedded in another one."""
    return codec(type(entity)).encode(entity).decode()


def from_text(entity_type: type[E], text: str) -> E:
    return codec(entity_type).decode(text.encode())


_codecs: dict[type[Entity], Codec[Any]] = {}


def codec(entity_type: type[E]) -> Codec[E]:
    """Returns the codec of an entity type, built once: reading type hints takes longer than reading a file."""
    if entity_type not in _codecs:
        _codecs[entity_type] = Codec(entity_type)
    return _codecs[entity_type]


def _read_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value) if isinstance(value, (bool, int, float)) else None


def _read_int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _read_bool(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _read_float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _read_items(make: Callable[[Any], Any], value: Any) -> tuple[Any, ...] | None:
    return tuple(make(json_value(item)) for item in value) if isinstance(value, list) else None


def _read_texts(value: Any) -> tuple[str, ...] | None:
    return tuple(_read_text(item) or str(json_value(item)) for item in value) if isinstance(value, list) else None


def _read_mapping(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()} or _NOTHING
    return None if value is None else {"value": json_value(value)}


_READERS: Mapping[Any, Callable[[Any], Any]] = {
    datetime: parse_time,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    tuple[str, ...]: _read_texts,
    Mapping: _read_mapping,
}


def _written_mapping(value: Mapping[str, Any]) -> Any:
    return plain_value(value) if value else {}


_WRITERS: Mapping[Any, Callable[[Any], Any] | None] = {
    **dict.fromkeys((str, bool, int, float)),
    datetime: format_time,
    tuple[str, ...]: list,
    Mapping: _written_mapping,
}
"""How the values of a field of this type become values of the header; None: they are. Of any other: `plain_value`."""


def _kind(hint: Any) -> Any:
    """Returns the type of a field, without None and the types of a mapping's items."""
    if get_origin(hint) is UnionType:
        hint = next(kind for kind in get_args(hint) if kind is not NoneType)
    return hint if hint == tuple[str, ...] else get_origin(hint) or hint


def _reader(hint: Any, make_item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Returns the function that converts a header value to a field of this type, or None if it is invalid."""
    if make_item is not None:
        return partial(_read_items, make_item)
    return _READERS.get(_kind(hint), _read_text)
