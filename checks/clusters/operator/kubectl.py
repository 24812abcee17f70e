"""The real kubectl against a test's API server."""

import asyncio
import subprocess

from checks.clusters.operator.closed_loop import Loop
from numazones_simulator.control_plane import ControlPlane


async def run(program: str, loop: Loop | ControlPlane, *arguments: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run,
        [program, f"--kubeconfig={loop.kubeconfig}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
