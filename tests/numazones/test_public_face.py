"""``import numazones``: every public name, loaded only when it is asked for."""

import ast
import doctest
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import numazones


def loaded(program: str) -> set[str]:
    """The library's modules that a program has loaded when it ends."""
    program += "; import sys; print('\\n'.join(name for name in sys.modules if name.startswith('numazones')))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def declared() -> dict[str, str]:
    """What type checkers see: public name → module."""
    block = next(
        node for node in ast.parse(Path(numazones.__file__).read_text()).body if isinstance(node, ast.If)
    )
    return {
        alias.name: str(line.module)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


def test_type_checkers_and_python_find_the_same_names() -> None:
    assert sorted(declared()) == sorted(numazones.__all__) == sorted(dir(numazones))
    for name, module in declared().items():
        __import__(module, fromlist=[name])
        assert getattr(numazones, name) is getattr(sys.modules[module], name)


WITHOUT_EXAMPLE = {"NUMAZone"}
"""What it says of itself is the description in its CustomResourceDefinition."""


@pytest.mark.parametrize("name", sorted(set(numazones.__all__) - WITHOUT_EXAMPLE))
def test_every_public_name_has_an_example_that_does_what_it_shows(name: str) -> None:
    thing = getattr(numazones, name)
    assert thing.__doc__, name
    module = thing if isinstance(thing, ModuleType) else sys.modules[thing.__module__]
    parts = [getattr(module, part) for part in getattr(module, "__all__", ())] if thing is module else []
    for documented in (*parts, *([] if parts else [thing])):
        name = thing.__name__ if documented is thing else documented.__name__
        examples = doctest.DocTestParser().get_doctest(documented.__doc__, dict(vars(module)), name, None, 0)
        assert examples.examples, f"{name} shows no example"
        report: list[str] = []
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        doctest.DocTestRunner(optionflags=flags).run(examples, out=report.append)
        assert not report, "".join(report)


def test_the_package_is_typed() -> None:
    assert Path(numazones.__file__).with_name("py.typed").exists()


def test_a_star_import_brings_all_of_them() -> None:
    names: dict[str, object] = {}
    exec("from numazones import *", names)  # noqa: S102 - the statement is what is tested
    assert set(numazones.__all__) <= set(names)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'numazones' has no attribute 'Kublet'"):
        numazones.Kublet  # type: ignore[attr-defined] # noqa: B018 - asking is what is tested


@pytest.mark.parametrize(
    ("program", "modules"),
    [
        ("import numazones", {"numazones"}),
        ("import numazones.cpuset", {"numazones", "numazones.cpuset", "numazones.errors"}),
        (
            "from numazones import Machine",
            {"numazones", "numazones.cpuset", "numazones.errors", "numazones.machine"},
        ),
    ],
)
def test_a_module_is_loaded_with_what_it_needs_and_nothing_else(program: str, modules: set[str]) -> None:
    assert loaded(program) == modules
