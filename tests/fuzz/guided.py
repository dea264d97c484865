"""`python -m tests.fuzz.guided TARGET [LIBFUZZER_OPTION…]`: one target, guided by the coverage of our own code."""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]  # not among the development tools: scripts/fuzz installs it

with atheris.instrument_imports(include=["multi_agent_mcp"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup([*sys.argv, "-verbosity=1"], target.hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
    atheris.Fuzz()
