import asyncio
import os
import sys
from pathlib import Path

import pytest

from numazones_simulator.programs import ProgramFailed, Programs

PYTHON = Path(sys.executable).name


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_programs_end_with_the_context(tmp_path: Path) -> None:
    async with Programs(tmp_path / "logs") as programs:
        pid = await programs.start("sleeper", [PYTHON, "-c", "import time; time.sleep(600)"])
        programs.check()
        assert _runs(pid)
    assert not _runs(pid)


async def test_ended_program_is_reported_with_its_last_log_lines(tmp_path: Path) -> None:
    async with Programs(tmp_path) as programs:
        await programs.start("talker", [PYTHON, "-c", "import sys; print('no such zone'); sys.exit(3)"])
        with pytest.raises(ProgramFailed, match="ended with status 3; the end of its log:\n  no such zone"):
            await _checked_until_one_fails(programs)


async def _checked_until_one_fails(programs: Programs) -> None:
    async with asyncio.timeout(120):
        while True:
            await asyncio.sleep(0.05)
            programs.check()


async def test_programs_get_the_environment_they_are_given(tmp_path: Path) -> None:
    script = "import os; print(os.environ['ZONE'], flush=True); import time; time.sleep(600)"
    async with Programs(tmp_path) as programs:
        await programs.start("reader", [PYTHON, "-c", script], environment={**os.environ, "ZONE": "seven"})
        async with asyncio.timeout(120):
            while not (tmp_path / "reader.log").read_text():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        assert (tmp_path / "reader.log").read_text() == "seven\n"


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    async with Programs(tmp_path) as programs:
        with pytest.raises(ProgramFailed, match="numazones-nothing is not installed"):
            await programs.start("nothing", ["numazones-nothing"])
