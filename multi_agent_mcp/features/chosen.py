"""Which features are on: `features:` of session.yaml or team.yaml, and the features of other packages
(docs/protocol.md, Features)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from multi_agent_mcp.errors import InvalidArguments, Reason
from multi_agent_mcp.features import GROUP, Feature, Features, load
from multi_agent_mcp.features.ours import ABSENT, ALL, OURS
from multi_agent_mcp.yaml_files import truth

logger = logging.getLogger(__name__)

OPTIONAL = {feature.name: feature for feature in OURS if feature.optional}


class Wrong(Exception):
    """Raised for a value or a feature that cannot be used, with the reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.refusal = InvalidArguments("bad_features", reason=reason)


def chosen(given: Any, switched: Collection[str] = ()) -> tuple[Features, tuple[InvalidArguments, ...]]:
    """The features of a session, and what is wrong with `features:`. A feature with which something is wrong is off, as
    is one with a switch that is not among those `switched` on."""
    if given is None:
        return (_of({}, switched) if switched else ALL), ()
    if not isinstance(given, Mapping):
        return _of({}, switched), (InvalidArguments("bad_features", reason=Reason("no_mapping_in", name="features")),)
    off: set[str] = set()
    added: list[Feature] = []
    wrong: list[InvalidArguments] = []
    for name, value in given.items():
        try:
            is_on = _is_on(name, value)
            if name not in OPTIONAL:
                added += [_of_other_package(name, added)] if is_on else _known(name)
        except Wrong as found:
            is_on = False
            wrong.append(found.refusal)
        if not is_on and name in OPTIONAL:
            off.add(name)
    return _of(off, switched, added), tuple(wrong)


def has_proof(approved: Mapping[str, Any]) -> bool:
    """Whether proof is on in the settings that were approved."""
    features = approved.get("features")
    value = features.get("proof", "on") if isinstance(features, Mapping) else "on"
    return "proof" in chosen({"proof": value})[0]


def _of(off: Collection[str], switched: Collection[str], added: Sequence[Feature] = ()) -> Features:
    is_off = {one.name: one.name in off or bool(one.switch and one.switch not in switched) for one in OURS}
    on, left_out = (tuple(one for one in OURS if is_off[one.name] is wanted) for wanted in (False, True))
    return Features((*on, *added), left_out)


def require_sound(given: Any) -> Features:
    """The features of a session. Raises `InvalidArguments` if something is wrong with `features:`, or if something that
    a feature of another package names cannot be loaded."""
    features, wrong = chosen(given)
    for refusal in wrong:
        raise refusal
    for feature in features.on:
        if feature not in OURS:
            for where in code_of(feature):
                try:
                    load(where)
                except (Exception, SystemExit) as error:
                    raise _broken(feature.name, error).refusal from error
    return features


def code_of(feature: Feature) -> list[str]:
    """The code that a record names by module."""
    named = chain(
        (command.where for command in feature.commands.values()),
        (endpoint.where for endpoint in feature.endpoints),
        (where for kind in feature.kinds for where in (kind.entity, kind.follows)),
        (*feature.tools, *feature.items, *feature.briefing, *feature.judges, feature.texts, feature.still_open),
        (where for action in feature.actions for where in (action.of, action.waits)),
        (*feature.checks.values(), *feature.verifications.values(), *feature.settings.values()),
    )
    return [where for where in named if ":" in where]


def texts_of(features: Features, language: str) -> dict[str, str]:
    """The texts that features of other packages bring, in this language or else in English."""
    found: dict[str, str] = {}
    for feature in features.on:
        if feature.texts:
            try:
                texts = load(feature.texts)
                found |= {str(key): str(text) for key, text in {**texts["en"], **texts.get(language, {})}.items()}
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a bug of another package
                logger.warning("the texts of the feature %s cannot be used: %s", feature.name, error)
    return found


def _is_on(name: Any, value: Any) -> bool:
    is_on = truth(value)
    if not isinstance(is_on, bool):
        where = f"features.{name!s:.60}"
        raise Wrong(Reason("no_choice", name=where, value=f"{value!r:.60}", allowed="on, off"))
    return is_on


def _known(name: Any) -> list[Feature]:
    """Nothing, for a feature that is off: of another package, or of a folder that is not here. Raises `Wrong` if there
    is none of this name."""
    if name not in ABSENT:
        _entry_point(name)
    return []


def _of_other_package(name: Any, others: list[Feature]) -> Feature:
    """The feature that another package declares by an entry point. Raises `Wrong`."""
    entry = _entry_point(name)
    try:
        feature = entry.load()
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error
    if not isinstance(feature, Feature) or feature.name != name:
        raise Wrong(Reason("no_feature", name=name, where=entry.value))
    for taken in _taken(feature, (*OURS, *others)):
        raise Wrong(Reason("feature_clashes", name=name, taken=taken))
    return feature


def _entry_point(name: Any) -> Any:
    from importlib.metadata import entry_points  # takes as long as all else here, and few sessions need it

    for entry in entry_points(group=GROUP, name=str(name)):
        return entry
    raise Wrong(Reason("unknown_feature", name=f"{name!s:.60}", allowed=", ".join(sorted(OPTIONAL))))


def _broken(name: str, error: BaseException) -> Wrong:
    return Wrong(Reason("feature_broken", name=name, error=f"{type(error).__name__}: {error!s:.200}"))


def _taken(feature: Feature, others: tuple[Feature, ...]) -> list[str]:
    """What the feature calls by a name that another one has."""
    return sorted({name for other in others for name in _names(feature) & _names(other)})


def _names(feature: Feature) -> set[str]:
    kinds = (name for kind in feature.kinds for name in (kind.directory, kind.prefix, kind.name) if name)
    endpoints = (f"{method} {path}" for method, path, _ in feature.endpoints)
    own = (f"feature {feature.name}", *(f"setting {key}" for key in feature.settings))
    return {*own, *kinds, *feature.commands, *feature.checks, *feature.attention, *endpoints}
