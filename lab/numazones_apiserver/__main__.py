"""Runs the embedded API server by itself: ``python -m numazones_apiserver``."""

import asyncio
import signal
from pathlib import Path

import click

from numazones_apiserver.server import ApiServer, NotLoopback


async def _serve(host: str, port: int, token: str, kubeconfig: Path | None) -> None:
    end = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has SIGHUP ignored, and shall have its way
            asyncio.get_running_loop().add_signal_handler(number, end.set)
    async with ApiServer(host=host, port=port, token=token) as server:
        click.echo(f"Serving the Kubernetes API on {server.url}")
        if kubeconfig is not None:
            click.echo(f"kubectl --kubeconfig {server.kubeconfig(kubeconfig)} get nodes")
        await end.wait()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback address to listen on.")
@click.option(
    "--port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--token", default="", help="Bearer token that requests must carry; without one, every request is served."
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a kubeconfig for the server to this file.",
)
def main(host: str, port: int, token: str, kubeconfig: Path | None) -> None:
    """Serve a Kubernetes API from memory, until interrupted.

    It accepts custom resource definitions, nodes, pods and workloads, but runs no kubelet and no scheduler.
    Its objects are lost when it ends. Try it:

    \b
      python -m numazones_apiserver --kubeconfig /tmp/kubeconfig &
      kubectl --kubeconfig /tmp/kubeconfig create namespace demo
      kubectl --kubeconfig /tmp/kubeconfig get namespaces

    It listens on loopback only and allows every request: use it for trials and tests, never as a cluster.
    """
    try:
        asyncio.run(_serve(host, port, token, kubeconfig))
    except (NotLoopback, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
