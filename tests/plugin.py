"""``kubectl numazones`` as people run it: a program of its own."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("kubectl-numazones")


async def run(*arguments: str | Path) -> tuple[int, str]:
    """Run it without a terminal; return its exit code, and what it printed, in that order."""
    code, output, _ = await _run(STDOUT, arguments)
    return code, output


async def streams(*arguments: str | Path) -> tuple[int, str, str]:
    """Run it without a terminal; return its exit code, and what it printed on either stream."""
    return await _run(PIPE, arguments)


async def _run(stderr: int, arguments: tuple[str | Path, ...]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=stderr
    )
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), (errors or b"").decode()
