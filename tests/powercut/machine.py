"""The machine whose power is cut: a recorded disk with ext4, and the checks by a new machine on the remaining data."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEBIBYTES = 96
RECORDER = (sys.executable, "-m", "tests.powercut.recorder")
OPTIONS = "noauto_da_alloc,commit=1"
TOOLS = ("mkfs.ext4", "losetup", "mount", "umount")


def missing() -> str | None:
    """The reason why this cannot run here, in one sentence; None when it can."""
    if os.geteuid() != 0:
        return "it mounts file systems, so it must be run as root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"there is no {device} here"
    known = Path("/proc/filesystems").read_text(encoding="ascii").split()
    if not {"ext4", "fuse"} <= set(known):
        return "this kernel knows no ext4 or no fuse"
    lacking = [tool for tool in TOOLS if subprocess.run(["which", tool], capture_output=True, check=False).returncode]
    return f"{', '.join(lacking)} is not installed" if lacking else None


@dataclass(frozen=True)
class Bench:
    """The directories and files of one trial."""

    base: Path

    @property
    def image(self) -> Path:
        """The disk as it was before anything was recorded: an empty ext4."""
        return self.base / "image"

    @property
    def log(self) -> Path:
        return self.base / "log"

    @property
    def socket(self) -> Path:
        """The socket that receives acknowledged results, one datagram each."""
        return self.base / "socket"

    def directory(self, name: str) -> Path:
        path = self.base / name
        path.mkdir(exist_ok=True)
        return path

    def format(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(MEBIBYTES << 20)
        run("mkfs.ext4", "-q", "-F", str(self.image))


@contextmanager
def recorded(bench: Bench) -> Iterator[Path]:
    """Mounts ext4 on a recorded disk; yields the mount point. The log is complete afterwards."""
    fuse, place = bench.directory("fuse"), bench.directory("machine")
    command = [*RECORDER, str(bench.image), str(fuse), str(bench.log), str(bench.socket)]
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE)
    if recorder.stdout is None or recorder.stdout.readline() != b"mounted\n":
        raise RuntimeError("the recorder did not start")
    try:
        with loop_mounted(fuse / "disk", place):
            yield place
    finally:
        _until_free(lambda: run("umount", str(fuse)))
        recorder.wait()


@contextmanager
def loop_mounted(image: Path, place: Path) -> Iterator[Path]:
    """ext4 in a file, mounted: its journal is replayed, as after a power cut. Without its remedy for programs that
    rename a file into place before it is on the disk, which other file systems do not have (ext4(5), auto_da_alloc)."""
    device = run("losetup", "--find", "--show", str(image)).strip()
    try:
        run("mount", "-t", "ext4", "-o", OPTIONS, device, str(place))
        try:
            yield place
        finally:
            _until_free(lambda: run("umount", str(place)))
    finally:
        run("losetup", "--detach", device)


def run(*command: str) -> str:
    """Runs a command; returns its output. Raises `CalledProcessError` with its error output."""
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _until_free(unmount: Callable[[], object], attempts: int = 100) -> None:
    """A process that was killed a moment ago may still hold a file."""
    for left in reversed(range(attempts)):
        try:
            unmount()
        except RuntimeError:
            if not left:
                raise
            time.sleep(0.1)
        else:
            return
