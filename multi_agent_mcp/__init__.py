"""Messages, tasks, conversations and interrupts between AI coding agents, through files.

What is stable here: `Team`, `Refused`, `Interrupted` and `__version__` (docs/python.md); their types are in
`__init__.pyi`."""

__version__ = "1.0.1rc1"

__all__ = ["Interrupted", "Refused", "Team", "__version__"]

_WHERE = {"Team": "team", "Refused": "agent", "Interrupted": "agent"}


def __getattr__(name: str) -> object:
    """Imports a public name when it is asked for: servers, hooks and commands import this package, too."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.toolkit.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
