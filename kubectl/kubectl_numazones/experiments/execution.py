"""Execution of an experiment's runs: in this process, other processes, or a Dask cluster.

Runs are pure functions of the experiment and their number, so all that an executor decides is when they are
done. Its one method yields chunks of runs as they come; what was done when Ctrl-C came is kept.
"""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import resource_tracker
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from numazones.errors import NumazonesError
from numazones.whatif.experiment import Experiment, Run, make_runs

_CHUNKS_PER_WORKER = 16
_MAX_RUNS_IN_CHUNK = 20
_SECONDS_TO_CONNECT = 10

Chunk = Sequence[int]
"""Numbers of runs."""


class CannotExecute(NumazonesError):
    """Workers cannot be had, or ended; the message says which and what to do."""


class RunExecutor(Protocol):
    """Makes runs."""

    @property
    def workers(self) -> int:
        """Return how many chunks are computed at once."""

    def run(self, experiment: Experiment, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Run]]]:
        """Yield each chunk with its runs, in whatever order they are done."""


@dataclass(frozen=True, slots=True)
class OneCore:
    """This process."""

    workers: int = 1

    def run(self, experiment: Experiment, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Run]]]:
        """Yield each chunk with its runs."""
        for chunk in chunks:
            yield chunk, make_runs(experiment, chunk)


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes on this machine."""

    workers: int

    def run(self, experiment: Experiment, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Run]]]:
        """Yield each chunk with its runs.

        Raises:
            CannotExecute: a process ended.
        """
        context = multiprocessing.get_context("spawn")  # the same everywhere, whatever threads there are
        with ProcessPoolExecutor(self.workers, context, _remember, (experiment,)) as pool:
            with _workers_ignore_interrupts():
                futures = {pool.submit(_runs_of_remembered, chunk): chunk for chunk in chunks}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BrokenProcessPool as error:
                raise CannotExecute(
                    "a worker process died, perhaps because it ran out of memory; try fewer --workers"
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)


_remembered: list[Experiment] = []
"""Of a worker process: the experiment, sent once instead of with every chunk."""


def _remember(experiment: Experiment) -> None:
    _remembered.append(experiment)


def _runs_of_remembered(chunk: Chunk) -> list[Run]:
    return make_runs(_remembered[0], chunk)


@contextmanager
def _workers_ignore_interrupts() -> Iterator[None]:
    """Start processes that leave Ctrl-C to this one, where it is delayed: they inherit that it is blocked."""
    resource_tracker.ensure_running()  # whoever starts it unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Dask:
    """The workers of a Dask cluster, which must have the same version of numazones."""

    def __init__(self, address: str) -> None:
        """Connect to a scheduler.

        Raises:
            CannotExecute: it does not answer, has no workers, or they have another version.
        """
        try:
            from distributed import Client  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            raise CannotExecute(
                "--scheduler needs Dask's client: in a checkout of numazones, pip install '.[sweep]'"
            ) from error
        try:
            self._client = Client(address, timeout=_SECONDS_TO_CONNECT)
        except (OSError, ValueError) as error:
            raise CannotExecute(f"no Dask scheduler responded at {address}: {error}") from error
        versions = self._client.run(_version)
        others = sorted({str(found) for found in versions.values()} - {_version()})
        if not versions or others:
            self._client.close()
            said = f"have numazones {', '.join(others)}, not {_version()}" if others else ""
            said = f"its workers {said}" if said else "it has no workers"
            raise CannotExecute(f"the Dask scheduler at {address} cannot be used: {said}")
        self.workers = len(versions)

    def run(self, experiment: Experiment, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Run]]]:
        """Yield each chunk with its runs.

        Raises:
            CannotExecute: the cluster lost workers, or cannot be reached any more.
        """
        from distributed import KilledWorker, as_completed  # noqa: PLC0415
        from distributed.client import FutureCancelledError  # noqa: PLC0415

        sent = self._client.scatter(experiment, broadcast=True)
        futures = {self._client.submit(make_runs, sent, chunk, pure=False): chunk for chunk in chunks}
        try:
            for future in as_completed(list(futures)):
                yield futures[future], future.result()
        except (OSError, KilledWorker, FutureCancelledError) as error:
            raise CannotExecute(f"the Dask cluster did not finish: {error}") from error
        finally:
            self._client.cancel(list(futures))
            self._client.close()


def _version() -> str:
    """Return the version of numazones here."""
    return version("numazones")


@contextmanager
def _interrupt_list() -> Iterator[list[int]]:
    """Give a list that the first Ctrl-C is noted in: what is being done is finished. A second one ends it."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def execute(experiment: Experiment, numbers: Sequence[int], executor: RunExecutor) -> dict[int, Run]:
    """Make the runs with these numbers, with a progress bar where there is a terminal; Ctrl-C ends it early.

    Returns number → run, of those that were done.

    Raises:
        CannotExecute: workers cannot be had, or ended.
    """
    size = max(1, min(_MAX_RUNS_IN_CHUNK, len(numbers) // (executor.workers * _CHUNKS_PER_WORKER)))
    chunks = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    done: dict[int, Run] = {}
    progress = Progress(
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not Console(stderr=True).is_terminal,
    )
    with _interrupt_list() as interrupted, progress:
        bar = progress.add_task("runs", total=len(numbers))
        for chunk, runs in executor.run(experiment, chunks):
            done |= zip(chunk, runs, strict=True)
            progress.advance(bar, len(chunk))
            if interrupted:
                break
    return done
