"""`scripts/release`: says what is missing for a release, and exits with 1 then.

Run by hand it checks the files. On a forge it also checks what is released: GITHUB_REPOSITORY and GITHUB_REF_NAME say
which repository and tag (https://docs.github.com/actions/reference/workflows-and-actions/variables).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from releasing import facts
from releasing.plugins import outdated

DATED = re.compile(r"^## (\d+\.\d+\.\d+(?:rc\d+)?) - \d{4}-\d{2}-\d{2}$", re.MULTILINE)


def missing(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields a sentence for each thing that is in the way of a release."""
    changelog = (facts.REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    if facts.VERSION not in DATED.findall(changelog):
        yield f"CHANGELOG.md has no dated section for {facts.VERSION}: give it '## {facts.VERSION} - YYYY-MM-DD'."
    for file in outdated():
        yield f"{file} is out of date: run scripts/plugins."
    if environ.get("GITHUB_REF_TYPE") == "tag" and (tag := environ.get("GITHUB_REF_NAME")) != f"v{facts.VERSION}":
        yield f"The tag is {tag}, and the version v{facts.VERSION}."
    published = environ.get("GITHUB_REPOSITORY")
    if published is not None and published.lower() != facts.slug().lower():
        yield (
            f"pyproject.toml names {facts.address()}, and this is {published}: "
            "put its address into [project.urls] and run scripts/plugins."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="scripts/release", description=__doc__).parse_args(arguments)
    sentences = list(missing(os.environ))
    for sentence in sentences:
        print(sentence)
    if not sentences:
        print(f"{facts.VERSION} is ready.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
