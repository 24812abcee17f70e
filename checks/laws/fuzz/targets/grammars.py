"""Small languages: quantities, lists of CPUs, durations, times, selectors, paths, patterns, tokens."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from checks.laws.fuzz.target import Target
from numazones import cpuset
from numazones.apimachinery import duration, jsonpath, quantity, timestamp
from numazones.apimachinery.documents import (
    ANNOTATION,
    DUMP,
    JSON_ANNOTATION,
    UnreadableDocument,
    check_lists,
    read_all_yaml,
    read_json,
)
from numazones.apimachinery.label_selector import InvalidSelector, LabelSelector
from numazones.placement.fragmentation import InvalidShape, Shape
from numazones_exporter.token_claims import token_claims
from numazones_topology_aware import glob, go_yaml

TOKEN = "e30.eyJrdWJlcm5ldGVzLmlvIjp7Im5vZGUiOnsibmFtZSI6Im4iLCJ1aWQiOiJ1In19fQ.x"


def _quantity(text: str) -> None:
    found = quantity.parse(text)
    assert quantity.parse(found.canonical()) == found
    found.value()


def _cpu_list(text: str) -> None:
    found = cpuset.parse(text)
    assert cpuset.parse(cpuset.format(found)) == found


def _duration(text: str) -> None:
    found = duration.parse(text)
    assert duration.parse(duration.format(found)) == found
    duration.human_duration(found.total_seconds())


def _time(text: str) -> None:
    timestamp.format(timestamp.parse(text))


def _selector(text: str) -> None:
    found = LabelSelector.parse(text)
    assert LabelSelector.parse(str(found)).matches({}) == found.matches({})


def _path(text: str) -> None:
    jsonpath.find({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, text)


def _pattern(text: str) -> None:
    glob.matches(text, "container-1")


def _grammar(
    name: str, read: Callable[[str], object], seeds: Iterable[str], *errors: type[Exception]
) -> Target:
    written = [seed.encode() for seed in seeds]
    return Target(name, lambda data: read(data.decode(errors="replace")), lambda: written, errors)


TARGETS = (
    _grammar("quantity", _quantity, ["1", "16Gi", "500m", "1.5e3", "-2Ki", "0.1u"], quantity.InvalidQuantity),
    _grammar("cpu-list", _cpu_list, ["", "0-3,8", " 1 , 5-7"], cpuset.InvalidCPUSet),
    _grammar("duration", _duration, ["0", "1h30m", "500ms", "1.5h"], duration.InvalidDuration),
    _grammar(
        "time", _time, ["2026-01-31T08:00:00Z", "2026-01-31T08:00:00.5+02:00"], timestamp.InvalidTimestamp
    ),
    _grammar("label-selector", _selector, ["a=b,c!=d", "app in (x, y),!z", "n>5"], InvalidSelector),
    _grammar(
        "json-path",
        _path,
        ['.status.conditions[?(@.type=="Ready")].status', "{.a[0].b}"],
        jsonpath.InvalidJSONPath,
    ),
    _grammar("shape", Shape.parse, ["cpu=4,memory=8Gi", "cpu=1,vendor.com/x=2"], InvalidShape),
    _grammar("pattern", _pattern, ["a*", "[a-c]?", "{a,b}-*", "\\*"], glob.InvalidPattern),
    _grammar(
        "go-yaml",
        go_yaml.load,
        ["a: [b, c]", "duration: 60s", "{a: {b: y}}", "a: &a [1]\nb: *a"],
        go_yaml.InvalidDocument,
    ),
    _grammar(
        "yaml",
        lambda text: list(read_all_yaml(text, ANNOTATION)),
        ["a: &a {b: 1}\nc: {<<: *a, d: 2.5}", "--- [y, 0x1F, 12:30]\n--- !!binary aGk="],
        UnreadableDocument,
    ),
    Target(
        "json",
        lambda data: read_json(data, JSON_ANNOTATION),
        lambda: [b'{"a": [1, -2.5e3, "]\\u00e9\\\\"], "b": {}}', "[[[1]], null]".encode("utf-16")],
        (UnreadableDocument,),
    ),
    Target(
        "lists",
        lambda data: check_lists(data, replace(DUMP, values=1000), 10),
        lambda: [b'{"items":[{"a":[1,2]},{"b":"],[\\""},3,4,5,6,7,8,9]}', b"[" + b"1," * 9 + b"1]"],
        (UnreadableDocument,),
    ),
    _grammar("token", token_claims, [TOKEN, "", "a.b.c"]),
)
