"""Prints at the end of a run how much processor time it took, and which tests took most of it.

Wall time depends on what else the machine does; the processor time of a test and of the programs that it
started and waited for hardly does. Each row of checks has a budget (``--processor-budget``), which shows when
a change makes tests more expensive. Exceeding it prints a warning and fails nothing, since processors differ.
"""

import resource
from collections.abc import Generator, Iterator

import pytest

_KEY = "processor_seconds"
_BEFORE = pytest.StashKey[float]()
_SHOWN = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the budget."""
    parser.addoption("--processor-budget", type=float, metavar="SECONDS", help="processor time to stay below")


def _used() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins."""
    item.stash[_BEFORE] = _used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what a test has used since its setup began into its last report."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((_KEY, _used() - item.stash[_BEFORE]))
    return report


def _seconds(terminal: pytest.TerminalReporter) -> Iterator[tuple[float, str]]:
    for reports in terminal.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                yield from ((float(str(v)), report.nodeid) for k, v in report.user_properties if k == _KEY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the sum, the budget and the tests that used most."""
    budget = config.getoption("--processor-budget")
    if budget is None:
        return
    found = sorted(_seconds(terminalreporter), reverse=True)
    total = sum(seconds for seconds, _ in found)
    terminalreporter.section(f"processor time: {total:.0f} s of {budget:.0f} s")
    for seconds, name in found[:_SHOWN]:
        terminalreporter.line(f"{seconds:7.1f} s  {name}")
    if total > budget:
        terminalreporter.line(f"over the budget by {total - budget:.0f} s: see CONTRIBUTING", yellow=True)
