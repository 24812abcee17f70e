"""Runs the project's other programs as processes of their own, as a cluster would.

The simulator never imports the exporter or the operator: it starts what was installed beside it, so that
what the demo and the tests show is what users run. Each program writes its log to a file of its own; when
one ends on its own accord, the error quotes the last lines of that log.
"""

import asyncio
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from numazones.errors import NumazonesError

_PATIENCE = 1.5
_QUOTED_LINES = 8


class ProgramFailed(NumazonesError):
    """A program is not installed, or ended although it should run; the message quotes its log."""


@dataclass(frozen=True, slots=True)
class _Program:
    name: str
    process: asyncio.subprocess.Process
    log: Path


class Programs:
    """Started programs; leaving the context stops them all."""

    def __init__(self, log_directory: Path) -> None:
        self.log_directory = log_directory
        self._programs: list[_Program] = []

    async def __aenter__(self) -> Self:
        self.log_directory.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> int:
        """Start a program under a name of our own; return its process id.

        Raises:
            ProgramFailed: the program is not installed.
        """
        log = self.log_directory / f"{name}.log"
        # A session of its own: Ctrl-C is for the simulator, which then ends its programs in order.
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                str(installed(command[0])),
                *command[1:],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        self._programs.append(_Program(name, process, log))
        return process.pid

    def check(self) -> None:
        """Raise an error if a program has ended.

        Raises:
            ProgramFailed: one has; the message quotes its log.
        """
        for program in self._programs:
            if program.process.returncode is not None:
                lines = program.log.read_text(encoding="utf-8", errors="replace").splitlines()
                quoted = "".join(f"\n  {line}" for line in lines[-_QUOTED_LINES:]) or " (its log is empty)"
                raise ProgramFailed(
                    f"{program.name} ended with status {program.process.returncode}; the end of its "
                    f"log:{quoted}"
                )

    async def stop(self) -> None:
        """End all programs: by SIGTERM, and after some seconds by SIGKILL."""
        programs, self._programs = self._programs, []
        running = [program.process for program in programs if program.process.returncode is None]
        for process in running:
            _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(process.wait() for process in running))
        except TimeoutError:
            for process in running:
                _signal(process, signal.SIGKILL)
            await asyncio.gather(*(process.wait() for process in running))


def installed(program: str) -> Path:
    """Return where a program is: beside the running Python, else on the path.

    Raises:
        ProgramFailed: it is in neither place.
    """
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise ProgramFailed(f"{program} is not installed; install numazones with all its extras")
    return Path(found)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)
