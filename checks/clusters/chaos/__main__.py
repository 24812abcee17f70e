"""Runs random traffic and faults: ``python -m checks.clusters.chaos [SEED [MINUTES [DIRECTORY]]]``."""

import asyncio
import random
import sys
import tempfile
from pathlib import Path

import click

from checks.clusters.chaos import driver
from checks.clusters.chaos.defects import DEFECTS


@click.command()
@click.argument("seed", type=int, required=False)
@click.argument("minutes", type=float, default=5.0)
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--defect", type=click.Choice(sorted(DEFECTS)), help="Put a defect into the operators.")
def main(seed: int | None, minutes: float, directory: Path | None, defect: str | None) -> None:
    """Run, and print what was broken; the exit status is 1 if anything was."""
    seed = random.randrange(1 << 31) if seed is None else seed
    directory = directory or Path(tempfile.mkdtemp(prefix="chaos"))
    directory.mkdir(parents=True, exist_ok=True)
    click.echo(f"SEED={seed} MINUTES={minutes:g}; history and logs are in {directory}")
    found = asyncio.run(
        driver.drive(
            directory,
            seed=seed,
            rounds=lambda _number, seconds: seconds < minutes * 60,
            defect=defect or "",
            say=click.echo,
        )
    )
    for violation in found:
        click.echo(str(violation))
    click.echo(f"SEED={seed}: {len(found)} violations")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
