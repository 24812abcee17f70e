"""The tables of docs/reference/resources.md, from the same schemas as the definitions.

Run as a program it renews everything below the marker of the file (``make crds``), so that the reference
never tells other fields than the API server takes.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from numazones.api import crd
from numazones.api.meta import APIObject

MARKER = "<!-- Below: generated from numazones/api by `make crds`; do not edit. -->\n"


def tables() -> str:
    """Return the reference of all kinds in Markdown."""
    return "".join(_kind(kind) for kind in crd.KINDS)


def renewed(document: str) -> str:
    """Return a document with everything below the marker replaced."""
    return document.partition(MARKER)[0] + MARKER + tables()


def _kind(kind: type[APIObject]) -> str:
    resource = kind.RESOURCE
    version = crd.crd(kind)["spec"]["versions"][0]
    names = ", ".join(f"`{name}`" for name in (resource.plural, *resource.short_names))
    lines = [
        "",
        f"## {resource.kind}",
        "",
        f"{resource.description} {resource.scope} scope; {names}.",
        "",
        "| column | shows |",
        "|---|---|",
        *(
            f"| {column.name.upper()}{' (wide)' if column.priority else ''} | {column.description} |"
            for column in resource.columns
        ),
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        *_rows(version["schema"]["openAPIV3Schema"]["properties"]),
        "",
    ]
    return "\n".join(lines)


def _rows(properties: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, field in properties.items():
        if not prefix and name not in {"spec", "status"}:
            continue
        path = f"{prefix}{name}"
        yield f"| `{path}` | {_type(field)} | {_meaning(field)} |"
        inner = field.get("items", field)
        yield from _rows(inner.get("properties", {}), f"{path}{'[]' if 'items' in field else ''}.")


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in field:
        return f"list of {_type(field['items'])}s"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}s"
    return str(field["type"])


def _meaning(field: Mapping[str, Any]) -> str:
    parts = [field["description"].replace("|", "\\|").replace("<", "&lt;")]
    if "enum" in field:
        parts.append("One of " + ", ".join(f"`{value}`" for value in field["enum"]) + ".")
    if "default" in field:
        parts.append(f"Default `{json.dumps(field['default']).strip(chr(34))}`.")
    return " ".join(parts)


def main(arguments: list[str]) -> int:
    """Renew the tables of one file."""
    (path,) = arguments
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - the library knows no paths
        document = file.read()
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - the library knows no paths
        file.write(renewed(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
