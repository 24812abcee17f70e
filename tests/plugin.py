"""``kubectl numazones`` as a process of its own, forked with its modules already imported.

It has its own streams, signals and exit code, as at a terminal, and saves the third of a second of imports.
``PROGRAM`` is the installed program, for tests of the start itself.
"""

import asyncio
import gc
import io
import os
import signal
import subprocess
import sys
import traceback
import warnings
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping
from importlib import import_module
from logging import root
from pathlib import Path
from typing import Any, NoReturn

import numazones_client.client
import numazones_client.kubeconfig  # noqa: F401 - what every command on a live cluster loads
from kubectl_numazones import main as program

PROGRAM = Path(sys.executable).with_name("kubectl-numazones")
_STREAMS = 3
for _command in program._COMMANDS.values():
    import_module(f"kubectl_numazones.commands.{_command.module}")


async def run(*arguments: str | Path) -> tuple[int, str]:
    """Run it without a terminal; return its exit code, and what it printed, in that order."""
    code, output, _ = await _run(STDOUT, arguments)
    return code, output


async def streams(*arguments: str | Path) -> tuple[int, str, str]:
    """Run it without a terminal; return its exit code, and what it printed on either stream."""
    return await _run(PIPE, arguments)


async def _run(stderr: int, arguments: tuple[str | Path, ...]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=stderr,
        preexec_fn=_plugin(arguments),
        restore_signals=False,
    )
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), (errors or b"").decode()


def started(
    *arguments: object, env: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.Popen[bytes]:
    """Start it with the streams that ``subprocess.Popen`` takes."""
    return subprocess.Popen([PROGRAM], preexec_fn=_plugin(arguments, env), restore_signals=False, **streams)  # noqa: PLW1509


def ended(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end without a terminal, with what it printed on each stream."""
    streams = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, **options}
    with started(*arguments, **streams) as process:
        output, errors = ((printed or b"").decode() for printed in process.communicate())
    return subprocess.CompletedProcess([*map(str, arguments)], process.returncode, output, errors)


def _plugin(
    arguments: tuple[object, ...], environment: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """Return what runs the plugin in a forked child, in place of another program."""

    def run_and_exit() -> NoReturn:
        code: Any = 1
        try:
            _leave_the_parent(environment)
            sys.argv = [str(PROGRAM), *map(str, arguments)]
            program.main(sys.argv[1:])
        except SystemExit as end:
            code = end.code
        except BaseException:  # noqa: BLE001 - as Python itself
            traceback.print_exc()
        finally:
            os._exit(code)

    return run_and_exit


def _leave_the_parent(environment: Mapping[str, str] | None) -> None:
    """Be a fresh process: its files, collector, signals, warnings and logs are not those of the tests."""
    os.closerange(_STREAMS, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    root.handlers.clear()
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writing(1, encoding, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writing(2, encoding, "backslashreplace")  # type: ignore[misc]


def _writing(file: int, encoding: str, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(file, "w", closefd=False)),
        encoding=encoding,
        errors=errors,
        line_buffering=os.isatty(file) or errors != "strict",
    )
