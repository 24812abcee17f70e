"""Random traffic and faults as long as one likes: ``python -m tests.chaos [SEED [MINUTES [DIRECTORY]]]``."""

import asyncio
import random
import sys
import tempfile
from pathlib import Path

import click

from tests.chaos import driver


def main() -> int:
    """Run, and print what was broken; the exit status is 1 if anything was."""
    given = dict(enumerate(sys.argv[1:]))
    seed = int(given.get(0) or random.randrange(1 << 31))
    minutes = float(given.get(1) or 5)
    directory = Path(given.get(2) or tempfile.mkdtemp(prefix="chaos"))
    directory.mkdir(parents=True, exist_ok=True)
    click.echo(f"SEED={seed} MINUTES={minutes:g}; history and logs are in {directory}")
    found = asyncio.run(
        driver.drive(
            directory,
            seed=seed,
            rounds=lambda _number, seconds: seconds < minutes * 60,
            say=click.echo,
        )
    )
    for violation in found:
        click.echo(str(violation))
    click.echo(f"SEED={seed}: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
