"""The paths of printer columns: what they lead to, and what is none."""

from typing import Any

import pytest

from numazones.apimachinery import jsonpath

OBJECT: dict[str, Any] = {
    "spec": {"a.b": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "text": "t"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.text", ["t"]),
        ("{.spec.text}", ["t"]),
        (".spec.absent", []),
        (".spec.a\\.b", [1]),
        (".spec['a.b']", [1]),
        (".spec['absent', 'text']", ["t"]),
        (".spec['text','a.b']", ["t", 1]),
        (".spec.list[0].n", ["x"]),
        (".spec.list[-1].n", ["y"]),
        (".spec.list[9].n", []),
        (".spec.list[*].n", ["x", "y"]),
        (".spec.list[0:1].v", [1]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Other')].status", ["False"]),
        (".spec.list[?(@.v>1)].n", ["y"]),
        (".spec.list[?(@.absent)].n", []),
        (".spec.list[?(@.v!=1)].n", ["y"]),
        ('.spec.list[?(@.n<"y")].v', [1]),
        (".spec.list[?(@.n>1)].v", []),
        ('.spec["a.b"]', [1]),
        ("$.spec.*", [1, OBJECT["spec"]["list"], "t"]),
        (".spec.text[*]", []),
        (".spec.text[0]", []),
        (".spec.text[0:1]", []),
        (".spec.text[?(@.n)]", []),
        (".spec['absent','present'].ready", []),
        (".", [OBJECT]),
    ],
)
def test_a_path_leads_to_what_a_column_shows(path: str, found: list[Any]) -> None:
    assert jsonpath.find(OBJECT, path) == found


@pytest.mark.parametrize(
    "path",
    [
        *("spec", ".spec[", ".spec.list[?(@.a==b)]", ".a..b", ".a[?(b)]", ".spec.list[-:]", ".spec.list[:-]"),
        pytest.param(f".spec.list[{'9' * 5000}]", id="endless"),
    ],
)
def test_what_is_no_json_path_is_an_error(path: str) -> None:
    with pytest.raises(jsonpath.InvalidJSONPath, match="JSONPath"):
        jsonpath.find(OBJECT, path)
