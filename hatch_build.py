"""A wheel with the library's typed core compiled by mypyc; hatchling runs this when it is asked to.

The pure wheel is the default, and the sources are the reference. mypyc gets a copy of them in which some
things are written out: the initialisers of frozen dataclasses, which it leaves to Python at the price of
speed; properties that are kept (``functools.cached_property`` is a plain property to it, so that tables are
made anew at each look); how such values are pickled, and the types of their fields. Frozen they stay, by
what ``dataclass`` adds.
"""

import ast
import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PREAMBLE = """\
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # mypyc reads it, nobody runs it
    from mypy_extensions import mypyc_attr


def _tell_types(kind: Any, types: dict[str, str]) -> None:
    kind.__annotations__.update(types)
    if fields := getattr(kind, "__dataclass_fields__", None):
        kind.__slots__ = tuple(types)
        for name, expression in types.items():
            fields[name].type = expression
"""
"""The function tells pydantic the types, which mypyc keeps in part, and that there is no ``__dict__``."""


class CompiledCore(BuildHookInterface[Any]):
    """Puts the compiled modules beside their sources, which Python then passes over."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules that the option ``modules`` names."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()  # until the wheel is written
        made = compiled(Path(self.root), self.config["modules"], Path(self._folder.name))
        build_data["force_include"].update({str(path): name for name, path in made.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if version != "editable":
            self._folder.cleanup()


def compiled(root: Path, modules: Iterable[str], folder: Path) -> dict[str, Path]:
    """Compile modules of ``numazones``; returns the files by their names in the wheel."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only this build needs them
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    sources, libraries = folder / "sources", folder / "libraries"
    shutil.copytree(root / "numazones", sources / "numazones", ignore=shutil.ignore_patterns("__pycache__"))
    paths = [f"{module.replace('.', '/')}.py" for module in modules]
    for path in paths:
        (sources / path).write_text(written_out((sources / path).read_text()))
    with contextlib.chdir(sources):
        options = ["--follow-imports=silent", "--ignore-missing-imports", "--config-file="]
        extensions = mypycify(
            [*options, *paths], group_name="numazones", debug_level="0", target_dir=str(folder / "c")
        )
        command = build_ext(Distribution({"name": "numazones", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(libraries), str(folder / "objects")
        command.ensure_finalized()
        command.run()
    return {str(path.relative_to(libraries)): path for path in libraries.rglob("*") if path.is_file()}


def written_out(source: str) -> str:
    """A module's source with what mypyc leaves to Python, or out, written out for every class of values."""
    lines = source.splitlines()
    body = ast.parse(source).body
    classes = [
        item for item in body if isinstance(item, ast.ClassDef) and (_dataclass(item) or _is_tuple(item))
    ]
    if not classes:
        return source
    for item in reversed(classes):  # from the end, so that line numbers hold
        methods = [part for part in item.body if isinstance(part, ast.FunctionDef)]
        fields = [_field(part, item.name) for part in item.body if isinstance(part, ast.AnnAssign)]
        lines[item.end_lineno or 0 : item.end_lineno] = [
            f"_tell_types({item.name}, { {field.name: field.type for field in fields} })"
        ]
        if (decorator := _dataclass(item)) is None:
            continue
        for method in reversed(methods):
            if _is_kept(method):
                lines[_start(method) : method.body[0].lineno - 1] = _indented(_property(method))
        start = min([*map(_start, methods), item.end_lineno or 0])
        lines[start:start] = _indented([*_initialiser(fields, methods), *_pickling(fields, methods)])
        decorator.keywords.append(ast.keyword("init", ast.Constant(value=False)))
        lines[decorator.lineno - 1 : decorator.end_lineno] = [
            *(f"{field.factory} = {field.default}" for field in fields if field.factory),
            "@mypyc_attr(allow_interpreted_subclasses=True)",  # or __new__ would call the initialiser
            f"@{ast.unparse(decorator)}",
        ]
    first = next(item.lineno for item in body if isinstance(item, ast.Import | ast.ImportFrom)) - 1
    return "\n".join([*lines[:first], _PREAMBLE, *lines[first:], ""])


class _Field(NamedTuple):
    name: str
    type: str
    default: str
    """An expression; empty: there is none."""
    factory: str
    """The name that the default's factory gets, so that no parameter hides what it calls; empty: a value."""
    given: bool
    """To the initialiser."""


def _field(line: ast.AnnAssign, owner: str) -> _Field:
    name, told, default = ast.unparse(line.target), {}, line.value
    if isinstance(default, ast.Call) and ast.unparse(default.func) == "field":
        told = {keyword.arg: keyword.value for keyword in default.keywords}
        default = told.get("default", told.get("default_factory"))
    return _Field(
        name,
        ast.unparse(line.annotation),
        ast.unparse(default) if default else "",
        f"_{owner}_{name}" if "default_factory" in told else "",
        "init" not in told,
    )


def _dataclass(item: ast.ClassDef) -> ast.Call | None:
    """``@dataclass(frozen=True, …)`` of a class."""
    for decorator in item.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "dataclass":
            return decorator
    return None


def _is_tuple(item: ast.ClassDef) -> bool:
    return [ast.unparse(base) for base in item.bases] == ["NamedTuple"]


def _is_kept(method: ast.FunctionDef) -> bool:
    return [ast.unparse(decorator) for decorator in method.decorator_list] == ["cached_property"]


def _start(method: ast.FunctionDef) -> int:
    """Index of a method's first line."""
    return min([method.lineno, *(decorator.lineno for decorator in method.decorator_list)]) - 1


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _property(method: ast.FunctionDef) -> Iterator[str]:
    """A property that keeps what the method, under another name, makes."""
    name, kind = method.name, _returned(method)
    yield "@property"
    yield f"def {name}(self) -> {kind}:"
    yield f"    if self._kept_{name} is None:"
    yield f"        self._kept_{name} = self._make_{name}()"
    yield f"    return self._kept_{name}"
    yield ""
    yield f"def _make_{name}(self) -> {kind}:"


def _returned(method: ast.FunctionDef) -> str:
    return ast.unparse(method.returns) if method.returns else "None"


def _initialiser(fields: Iterable[_Field], methods: Iterable[ast.FunctionDef]) -> Iterator[str]:
    """What ``dataclass`` would write, for types that mypyc knows."""
    given = [field for field in fields if field.given]
    parameters = [
        f"{field.name}: {field.type}"
        + (" | None = None" if field.factory else f" = {field.default}" if field.default else "")
        for field in given
    ]
    yield f"def __init__({', '.join(['self', *parameters])}) -> None:"
    for field in given:
        made = f"{field.factory}() if {field.name} is None else " if field.factory else ""
        yield f"    self.{field.name} = {made}{field.name}  # type: ignore[misc]"
    for method in methods:
        if _is_kept(method):
            yield f"    self._kept_{method.name}: {_returned(method)} | None = None"
    if any(method.name == "__post_init__" for method in methods):
        yield "    self.__post_init__()"
    yield ""


def _pickling(fields: Iterable[_Field], methods: Iterable[ast.FunctionDef]) -> Iterator[str]:
    """Pickled is what ``dataclass`` would pickle of a class with slots: the fields."""
    names = [field.name for field in fields]
    yield "def __getstate__(self) -> tuple[Any, ...]:"
    yield f"    return ({', '.join(f'self.{name}' for name in names)},)"
    yield ""
    yield "def __setstate__(self, state: tuple[Any, ...]) -> None:"
    yield f"    ({', '.join(f'self.{name}' for name in names)},) = state  # type: ignore[misc]"
    yield from (f"    self._kept_{method.name} = None" for method in methods if _is_kept(method))
    yield ""
