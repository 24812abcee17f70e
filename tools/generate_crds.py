"""Writes what is generated from numazones/api: ``crds/`` and the tables of docs/reference/resources.md.

``make crds`` runs it; with ``--check`` it only says which files differ, as a test does. Paths are relative
to the folder given.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from numazones.api import crd
from numazones.api.meta import APIObject

HEADER = "# Generated from numazones/api by `make crds`; do not edit.\n"
MARKER = "<!-- Below: generated from numazones/api by `make crds`; do not edit. -->\n"
REFERENCE = Path("docs/reference/resources.md")


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or check that they are up to date; 1 when they are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, name the files that differ")
    parser.add_argument(
        "root", type=Path, nargs="?", default=Path(__file__).parents[1], help="the repository  [this one]"
    )
    options = parser.parse_args(arguments)
    stale = 0
    for path, content in generated(options.root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            stale += 1
            if options.check:
                sys.stderr.write(f"{path} differs from numazones/api; run make crds\n")
            else:
                path.write_text(content, encoding="utf-8")
    return int(options.check and stale > 0)


def generated(root: Path) -> dict[Path, str]:
    """Path → content of every generated file; of the reference, what stands above the marker stays."""
    definitions = {f"{kind.RESOURCE.plural}.yaml": _yaml(crd.crd(kind)) for kind in crd.KINDS}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(definitions),
    }
    files = {**definitions, "kustomization.yaml": _yaml(kustomization)}
    head = (root / REFERENCE).read_text(encoding="utf-8").partition(MARKER)[0]
    reference = head + MARKER + "".join(_kind(kind) for kind in crd.KINDS)
    return {root / "crds" / name: text for name, text in files.items()} | {root / REFERENCE: reference}


def _yaml(document: Mapping[str, Any]) -> str:
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)


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


if __name__ == "__main__":
    sys.exit(main())
