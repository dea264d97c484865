"""`prices.yaml`: what tokens cost."""

from __future__ import annotations

from pathlib import Path

from multi_agent_mcp.errors import InvalidArguments, Reason
from multi_agent_mcp.yaml_files import NOT_YAML, load_yaml, yaml_problem

PRICE_MAX = 1e12
"""Prices are below it, so that what any number of tokens costs is a number that JSON knows."""


def read_prices(path: Path) -> tuple[str, dict[str, dict[str, float]]] | None:
    """Reads prices.yaml: the currency, and prices per million tokens by patterns of models; None if there is none.
    Raises `InvalidArguments`."""
    try:
        data = load_yaml(path)
        currency, models = str(data["currency"]), data["per_million"]
        found = {
            str(model): {str(name): float(price) for name, price in prices.items()} for model, prices in models.items()
        }
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidArguments("bad_prices", reason=error) from error
    except NOT_YAML as error:
        raise InvalidArguments("bad_prices", reason=yaml_problem(error)) from error
    if not all(abs(price) < PRICE_MAX for prices in found.values() for price in prices.values()):
        raise InvalidArguments("bad_prices", reason=Reason("no_json"))
    return currency, found
