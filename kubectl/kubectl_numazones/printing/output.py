"""``-o``: the forms that an answer can be had in, the same for all commands, as kubectl has them.

Text is for people; the rest is one document, whose fields ``documents`` describes, in JSON, in YAML, or
what a JSONPath template finds in it. Names are those that ``kubectl get`` takes.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from numazones.apimachinery.answer import document as written
from numazones.apimachinery.jsonpath import InvalidJSONPath, compile_path, find
from numazones.wording import did_you_mean

_JSONPATH = "jsonpath"
DOCUMENTS = ("json", "yaml")
_BRACES = re.compile(r"\{([^{}]*)\}")
_LITERAL = re.compile(r"""^(['"])(.*)\1$""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_COMMANDING = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RANGE = "range "
_Part = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Output:
    """The form that an answer is asked for in."""

    form: str
    template: str = ""

    def __str__(self) -> str:
        return f"{self.form}={self.template}" if self.template else self.form

    @property
    def is_document(self) -> bool:
        """Return whether the output is a document, which ``write`` prints."""
        return self.form in DOCUMENTS or self.form == _JSONPATH

    def write(self, answer: object) -> None:
        """Print a value as a document in the form that was asked for."""
        document = written(answer)
        if self.form == _JSONPATH:
            click.echo(filled(self.template, document))
        elif self.form == "yaml":
            click.echo(_yaml(document), nl=False)
        else:
            click.echo(_json(document))


def _yaml(document: Any) -> str:
    """Write YAML, with characters of all languages unless some would command a terminal."""
    import yaml  # noqa: PLC0415 - slow to import, and few ask for YAML

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if _COMMANDING.search(text) is not None:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=False)
    return text


def _json(document: Any) -> str:
    """Write JSON; characters that would command a terminal are escaped, and read back as they were."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _COMMANDING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _OutputType(click.ParamType[Output]):
    """Reads the value of ``-o``."""

    name = "form"

    def __init__(self, forms: Iterable[str]) -> None:
        self._forms = tuple(forms)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        return f"[{'|'.join(self._forms)}|{_JSONPATH}=TEMPLATE]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        if isinstance(value, Output):
            return value
        form, _, template = str(value).partition("=")
        if form == _JSONPATH:
            if not template:
                self.fail("jsonpath needs a template, such as -o jsonpath='{.items[*].node}'", param, ctx)
            try:
                _parts(template)
            except InvalidJSONPath as error:
                self.fail(str(error), param, ctx)
            return Output(form, template)
        if value in self._forms:
            return Output(str(value))
        cure = did_you_mean(value, self._forms) or f"; use {', '.join(self._forms)} or {_JSONPATH}=…"
        return self.fail(f"unknown output format {value!r}{cure}", param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        forms = (*self._forms, f"{_JSONPATH}=")
        return [CompletionItem(form) for form in forms if form.startswith(incomplete)]


def output_option(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``-o`` to a command that has a document; ``forms``: those for people, the default first."""
    return click.option(
        "-o",
        "--output",
        type=_OutputType((*(forms or ("text",)), *DOCUMENTS)),
        default=forms[0] if forms else "text",
        show_default=True,
        help="Output format.",
    )


def filled(template: str, document: Any) -> str:
    """Return a JSONPath template, as kubectl's, filled with what it finds in a document.

    Several values found by one path are separated by blanks; objects and lists are JSON. ``{range PATH}`` and
    ``{end}`` repeat what is between them; ``{"\\n"}`` is a literal.

    Raises:
        InvalidJSONPath: the template is none.
    """
    return "".join(part(document) for part in _parts(template))


def _parts(template: str) -> list[_Part]:
    """Return the parts of a template: what each adds to the text, given the value that paths begin at."""
    open_ranges: list[tuple[str, list[_Part]]] = [("", [])]
    at = 0
    for match in _BRACES.finditer(template):
        open_ranges[-1][1].append(_text(template[at : match.start()], template))
        at = match.end()
        inside = match[1].strip()
        if inside == "end":
            path, repeated = open_ranges.pop()
            if not open_ranges:
                raise InvalidJSONPath(f"{template!r} has an {{end}} without a {{range}}")
            open_ranges[-1][1].append(_range(path, repeated))
        elif inside.startswith(_RANGE):
            open_ranges.append((inside.removeprefix(_RANGE).strip(), []))
        elif literal := _LITERAL.match(inside):
            open_ranges[-1][1].append(_text(_unescaped(literal[2])))
        else:
            open_ranges[-1][1].append(_path(inside))
    if len(open_ranges) > 1:
        raise InvalidJSONPath(f"{template!r} has a {{range}} without an {{end}}")
    return [*open_ranges[0][1], _text(template[at:], template)]


def _text(text: str, template: str = "") -> _Part:
    if template and ("{" in text or "}" in text):
        raise InvalidJSONPath(f"{template!r} has unbalanced braces")
    return lambda _: text


def _path(path: str) -> _Part:
    compile_path(path)
    return lambda value: " ".join(map(_shown, find(value, path)))


def _range(path: str, repeated: list[_Part]) -> _Part:
    compile_path(path)
    return lambda value: "".join(part(item) for item in find(value, path) for part in repeated)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
