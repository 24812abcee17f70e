"""The command ``numazones-simulator``: a Kubernetes API server, recorded nodes, simulated clusters.

Everything runs on this machine, on loopback addresses, as an ordinary user, and is gone when it ends.
"""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import click

from numazones.errors import NumazonesError
from numazones_simulator import recorded_nodes, recordings, tables
from numazones_simulator.apiserver.__main__ import main as apiserver
from numazones_simulator.control_plane import ControlPlane
from numazones_simulator.screen import Screen

_ZONES = "/apis/numazones.io/v1alpha1/numazones"
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_SETTINGS)
@click.version_option(version("numazones"), prog_name="numazones-simulator")
def main() -> None:
    r"""Stand in for a Kubernetes cluster, to see and try numazones without one.

    \b
      numazones-simulator demo        recorded nodes, exported into an API server
      numazones-simulator apiserver   nothing but an empty API server

    Nothing is installed, nothing outside of this machine is contacted, and everything is gone afterwards.
    """


main.add_command(apiserver, "apiserver")


@main.command(context_settings=_SETTINGS)
@click.option(
    "--recordings",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with recorded nodes.  [default: $NUMAZONES_SHARED/recordings, else the project's sample]",
)
@click.option("--port", default=0, show_default=True, help="Port of the API server; 0 takes a free one.")
@click.option(
    "--serve/--no-serve",
    default=None,
    help="Keep the API server running until Ctrl-C.  [default: only on a terminal]",
)
def demo(directory: Path | None, port: int, *, serve: bool | None) -> None:
    """Export recorded nodes into an API server on this machine, and show their zones.

    Each node is a recording of a real kubelet: its sysfs, its state files, its podresources answers. A real
    numazones-exporter process reads each of them, as it would on the node, and publishes NUMAZone objects.

    Afterwards the API server stays for kubectl, until Ctrl-C; without a terminal the command just ends.
    """
    screen = Screen()
    serving = screen.is_terminal if serve is None else serve

    async def show(scratch: Path) -> None:
        recorded = recordings.find(directory)
        async with recorded_nodes.running(recorded, scratch, screen, port=port) as plane:
            screen.title("kubectl get numazones")
            screen.say(tables.render(await tables.fetch(plane.server.url, _ZONES)))
            if serving:
                await _serve(plane, screen)

    _run(show)


async def _serve(plane: ControlPlane, screen: Screen) -> None:
    """Tell how to reach the API server, and stay until the command is ended."""
    screen.title("Try it from another terminal")
    screen.say(f"  export KUBECONFIG={plane.kubeconfig}")
    screen.say("  kubectl get numazones -o wide")
    screen.say("  kubectl explain numazone.status")
    screen.say()
    screen.say("Ctrl-C ends it and removes everything.")
    await asyncio.Event().wait()


def _run(work: Callable[[Path], Awaitable[None]]) -> None:
    """Do work with a temporary directory; Ctrl-C ends it in order, errors end it with their message."""

    async def until_signalled(scratch: Path) -> None:
        working = asyncio.ensure_future(work(scratch))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, working.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await working

    with tempfile.TemporaryDirectory(prefix="numazones-") as scratch:
        try:
            asyncio.run(until_signalled(Path(scratch)))
        except NumazonesError as error:
            raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
