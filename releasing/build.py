"""`scripts/build`: the sdist of a commit, and the wheel made from it. Everybody who builds it gets the same bytes.

The files are those of the commit, whatever else is in the directory, and their times are the commit's
(SOURCE_DATE_EPOCH, https://reproducible-builds.org/specs/source-date-epoch/).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from releasing.facts import REPOSITORY


def build(directory: Path, commit: str = "HEAD") -> list[Path]:
    """Builds into the directory; returns the sdist and the wheel. Raises `CalledProcessError`."""
    epoch = _git("log", "-1", "--format=%ct", commit).decode().strip()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mam-build-") as name:
        sources = Path(name, "sources")
        _unpack(io.BytesIO(_git("archive", "--format=tar", commit)), sources)
        sdist = _built(sources, "sdist", Path(name, "sdist"), epoch)
        _unpack(io.BytesIO(sdist.read_bytes()), Path(name, "unpacked"))
        (unpacked,) = Path(name, "unpacked").iterdir()
        wheel = _built(unpacked, "wheel", Path(name, "wheel"), epoch)
        return [Path(shutil.copy(file, directory)) for file in (sdist, wheel)]


def _built(sources: Path, target: str, directory: Path, epoch: str) -> Path:
    call = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    env = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    subprocess.run(call, cwd=sources, env=env, check=True, capture_output=True)
    (built,) = directory.iterdir()
    return built


def _unpack(archive: io.BytesIO, directory: Path) -> None:
    with tarfile.open(fileobj=archive) as files:
        files.extractall(directory, filter="data")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/build", description=__doc__)
    parser.add_argument("--directory", metavar="DIR", type=Path, default=REPOSITORY / "dist", help="default: dist")
    parser.add_argument("--commit", metavar="COMMIT", default="HEAD", help="default: HEAD")
    options = parser.parse_args(arguments)
    for file in build(options.directory, options.commit):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
