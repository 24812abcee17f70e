"""``import numazones``: every public name, loaded only when it is asked for."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import numazones


def loaded(program: str) -> set[str]:
    """The library's modules that a program has loaded when it ends."""
    program += "; import sys; print('\\n'.join(name for name in sys.modules if name.startswith('numazones')))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def declared() -> dict[str, str]:
    """Return what type checkers see: public name → module."""
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


Documented = tuple[str, ModuleType, Any]
"""(name, the module that defines it, class or function)."""


def public_things() -> Iterator[Documented]:
    """Every public name with its public methods; of a module its functions, and its classes' methods."""
    for name in numazones.__all__:
        thing = getattr(numazones, name)
        if not isinstance(thing, ModuleType):
            yield name, sys.modules[thing.__module__], thing
            yield from methods(name, thing)
            continue
        for part, inner in vars(thing).items():
            if not part.startswith("_") and getattr(inner, "__module__", "") == thing.__name__:
                if inspect.isfunction(inner) or hasattr(inner, "__wrapped__"):
                    yield f"{name}.{part}", thing, inner
                elif inspect.isclass(inner):
                    yield from methods(f"{name}.{part}", inner)


def methods(name: str, thing: Any) -> Iterator[Documented]:
    """Yield what a class itself defines for callers; properties have no parameters."""
    for part, inner in vars(thing).items() if inspect.isclass(thing) else ():
        function = inner.__func__ if isinstance(inner, classmethod | staticmethod) else inner
        if not part.startswith("_") and inspect.isfunction(function):
            yield f"{name}.{part}", sys.modules[thing.__module__], function


THINGS = [pytest.param(*thing, id=thing[0]) for thing in public_things() if thing[0] not in WITHOUT_EXAMPLE]
ARGS = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
ARGUMENT = re.compile(r"^    (\w+): \S", re.MULTILINE)


@pytest.mark.parametrize(("name", "module", "thing"), THINGS)
def test_everything_public_has_an_example_that_does_what_it_shows(
    name: str, module: ModuleType, thing: Any
) -> None:
    examples = doctest.DocTestParser().get_doctest(thing.__doc__ or "", dict(vars(module)), name, None, 0)
    assert examples.examples, f"{name} shows no example"
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(examples, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize(("name", "module", "thing"), THINGS)
def test_every_parameter_of_what_can_be_called_is_described(
    name: str, module: ModuleType, thing: Any
) -> None:
    if inspect.isclass(thing):
        return  # fields say what they are where they are defined
    section = ARGS.search(inspect.getdoc(thing) or "")
    described = ARGUMENT.findall(section[1]) if section else []
    parameters = [each for each in inspect.signature(thing).parameters if each not in {"self", "cls"}]
    assert described == parameters, name


def test_the_package_is_typed() -> None:
    assert Path(numazones.__file__).with_name("py.typed").exists()


def test_a_star_import_brings_all_of_them() -> None:
    names: dict[str, object] = {}
    exec("from numazones import *", names)  # noqa: S102 - the statement is what is tested
    assert set(numazones.__all__) <= set(names)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'numazones' has no attribute 'Kublet'"):
        numazones.Kublet  # type: ignore[attr-defined] # noqa: B018 - asking is what is tested


NODE = numazones.build.node(numazones.build.machine(cores=4, memory="8Gi"))
POD = numazones.ClusterPod.from_api(numazones.build.pod_body("p", cpu=1))
WRONG: Any = {}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: numazones.admit(NODE, WRONG), "expected Pod, not dict; use build.pod"),
        (lambda: numazones.admit(WRONG, WRONG), "expected Node, not dict; use build.node"),
        (lambda: numazones.explain(WRONG), "expected Admission, not dict; pass the result of admit"),
        (lambda: numazones.predict(WRONG, []), "expected ClusterPod, not dict; use ClusterPod.from_manifest"),
        (lambda: numazones.predict(POD, [WRONG]), "expected ClusterNode, not dict; use cluster_from_api"),
        (
            lambda: numazones.cluster_from_api(WRONG),
            "cluster is not a list of objects: pass what kubectl get",
        ),
    ],
)
def test_wrong_argument_is_answered_with_the_expected_one(call: Callable[[], object], said: str) -> None:
    with pytest.raises(numazones.NumazonesError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    ("program", "modules"),
    [
        ("import numazones", {"numazones"}),
        ("import numazones.cpuset", {"numazones", "numazones.cpuset", "numazones.errors"}),
        (
            "from numazones import Machine",
            {
                *("numazones", "numazones.cpuset", "numazones.errors"),
                *("numazones.kubelet", "numazones.kubelet.machine"),
            },
        ),
    ],
)
def test_module_is_loaded_with_what_it_needs_and_nothing_else(program: str, modules: set[str]) -> None:
    assert loaded(program) == modules
