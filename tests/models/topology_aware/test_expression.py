"""Expressions, affinities and shell patterns of annotations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.kubelet.demand import QOSClass
from numazones_topology_aware import affinity, glob, go_yaml
from numazones_topology_aware.expression import Expression, Subject
from numazones_topology_aware.go_yaml import InvalidDocument
from numazones_topology_aware.node import Node
from numazones_topology_aware.sandbox import ContainerSpec, Sandbox
from tests.models.topology_aware.machines import configuration, hardware

SUBJECT = Subject(
    Sandbox("sid", "web-1", "shop", "uid-1", QOSClass.BURSTABLE, labels={"app": "web"}),
    ContainerSpec("cid", "nginx", labels={"tier/x": "front"}),
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "nginx"),
        ("namespace", "shop"),
        ("qosclass", "Burstable"),
        ("id", "cid"),
        ("labels/tier/x", "front"),
        ("labels/none", None),
        ("tags/any", None),
        ("pod/name", "web-1"),
        ("pod/id", "sid"),
        ("pod/uid", "uid-1"),
        ("pod/namespace", "shop"),
        ("pod/labels/app", "web"),
        ("pod//name", "web-1"),
        # Defects of the code: accepted, but without a value.
        ("pod/qosclass", None),
        ("uid", None),
        ("/name", None),
        ("pod/pod/name", None),
    ],
)
def test_keys_resolve(key: str, value: str | None) -> None:
    assert SUBJECT.resolve(key) == value


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("name", "Equals", ["nginx"], True),
        ("name", "Equals", ["*"], True),
        ("labels/none", "Equals", ["*"], False),
        ("name", "NotEqual", ["nginx"], False),
        ("name", "NotEqual", ["*"], True),
        ("labels/none", "NotEqual", ["x"], True),
        ("name", "In", ["a", "nginx"], True),
        ("name", "In", ["*"], True),
        ("name", "NotIn", ["a"], True),
        ("labels/none", "NotIn", ["a"], True),
        ("name", "Exists", [], True),
        ("labels/none", "Exists", [], False),
        ("labels/none", "NotExist", [], True),
        ("name", "Matches", ["ng*"], True),
        ("name", "Matches", ["[bad"], False),
        ("name", "MatchesNot", ["ng*"], False),
        ("name", "MatchesAny", ["x*", "n?inx"], True),
        ("name", "MatchesNone", ["x*"], True),
        ("labels/none", "MatchesNone", ["*"], True),
        ("name", "AlwaysTrue", [], True),
        # Joint keys: with separators of their own, or colons.
        (":,-pod/name,name", "Equals", ["web-1-nginx"], True),
        (":pod/name:name", "Equals", ["web-1:nginx"], True),
        (":,-pod/name,labels/none", "Equals", ["web-1-"], True),
        (":,-labels/none,labels/no", "Exists", [], False),
    ],
)
def test_operators(key: str, operator: str, values: list[str], holds: bool) -> None:  # noqa: FBT001
    expression = Expression.parse({"key": key, "operator": operator, "values": values})
    assert expression.holds(SUBJECT) is holds


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"key": "name", "operator": "Like", "values": ["a"]}, "unknown operator 'Like'"),
        ({"key": "name", "operator": "Equals", "values": []}, "Equals takes 1 value"),
        ({"key": "name", "operator": "Exists", "values": ["a"]}, "Exists takes no values"),
        ({"operator": "AlwaysTrue"}, "unknown key ''"),
        ({"key": "colour", "operator": "Exists"}, "unknown key 'colour'"),
        ({"key": "name/x", "operator": "Exists"}, "continues after 'name', which has no parts"),
        ({"key": "labels", "operator": "Exists"}, "ends with 'labels'"),
        ({"key": "pod", "operator": "Exists"}, "ends with 'pod'"),
        ({"key": "name", "operator": "Exists", "negate": True}, "unknown field 'negate'"),
        ("name", "is not a mapping"),
    ],
)
def test_broken_expressions_are_named(document: object, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message):
        Expression.parse(document)


def weights(annotations: dict[str, str], **config: bool) -> dict[str, int]:
    """Weights of container ``a`` towards others of its pod and of another pod in its namespace."""
    full = {f"resource-policy.nri.io/{key}": value for key, value in annotations.items()}
    own = Sandbox("s", "p", "ns", annotations=full)
    other = Sandbox("t", "q", "ns")
    found = affinity.of_container(own, ContainerSpec("id-a", "a"), configuration(**config))
    subjects = [Subject(own, ContainerSpec(f"id-{name}", name)) for name in "bc"]
    return affinity.weights(found, [*subjects, Subject(other, ContainerSpec("id-x", "b"))])


@pytest.mark.parametrize(
    ("annotations", "config", "sums"),
    [
        ({}, {}, {}),
        ({"affinity": "a: [b]"}, {}, {"id-b": 1}),
        ({"affinity": "b: [a]"}, {}, {"id-b": 1}),  # the short form holds both ways
        ({"affinity": "a: [b, c]"}, {}, {"id-b": 1, "id-c": 1}),
        ({"anti-affinity": "a: [b]"}, {}, {"id-b": -1}),
        ({"affinity": "a: [b]", "anti-affinity": "a: [b]"}, {}, {"id-b": 0}),
        (
            {"affinity": "a: [{match: {key: name, operator: Equals, values: [b]}, weight: 5000}]"},
            {},
            {"id-b": 1000},
        ),
        (
            {"anti-affinity": "a: [{match: {key: name, operator: Equals, values: [b]}, weight: -7}]"},
            {},
            {"id-b": 7},
        ),
        (
            {
                "affinity": "a: [{scope: {key: namespace, operator: Equals, values: [ns]}, "
                "match: {key: name, operator: Equals, values: [b]}}]"
            },
            {},
            {"id-b": 1, "id-x": 1},
        ),
        ({}, {"colocate_pods": True}, {"id-b": 10, "id-c": 10}),
        ({}, {"colocate_namespaces": True}, {"id-b": 10, "id-c": 10, "id-x": 10}),
        ({"affinity": "a: [b]"}, {"colocate_pods": True}, {"id-b": 1}),  # own affinities replace colocation
    ],
)
def test_affinities_add_up(
    annotations: dict[str, str], config: dict[str, bool], sums: dict[str, int]
) -> None:
    assert weights(annotations, **config) == sums


@pytest.mark.parametrize(
    "annotation",
    [
        "x: [",
        "a: [b]\na: [c]",
        "a: [{match: null}]",
        "a: [{match: {key: name}, weight: heavy}]",
        "a: b",
        "a: [1: 2]",
    ],
)
def test_a_broken_affinity_is_rejected_for_whichever_container(annotation: str) -> None:
    with pytest.raises(InvalidDocument):
        weights({"affinity": annotation})


@pytest.mark.parametrize(
    ("own", "best"),
    [
        ({"NUMA node #1": 1}, "NUMA node #1"),
        ({"NUMA node #1": 1, "NUMA node #3": 1}, "root"),
        ({"NUMA node #2": 1, "NUMA node #3": 1}, "socket #1"),
        ({"NUMA node #2": 2, "NUMA node #3": 1}, "socket #1"),
        ({"NUMA node #2": 4, "NUMA node #3": 1}, "NUMA node #2"),
    ],
)
def test_affinity_counts_less_per_level(own: dict[str, int], best: str) -> None:
    tree = Node.fresh(hardware(), configuration()).policy.tree
    scores = affinity.pool_scores(tree, {tree.by_name[name]: weight for name, weight in own.items()})
    highest = max(scores)
    assert best in {tree.pools[place].name for place, score in enumerate(scores) if score == highest}


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        ("*", "", True),
        ("*", "a/b", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c]x", "bx", True),
        ("[^a-c]x", "bx", False),
        ("[]a]", "a", None),
        ("a\\*", "a*", True),
        ("a\\", "a", None),
        ("[a", "a", None),
        ("[a-]", "a", None),
        ("[c-a]", "b", False),
        ("[\\]x]", "]", True),
        ("[\\", "a", None),
        ("/sys/*/x", "/sys/dev/x", True),
        ("*ab", "abab", True),
        ("a*b*c", "a/b/c", False),
        ("*a*b", "xaxbxb", True),
        ("**", "anything", True),
        ("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "a" * 60, False),
    ],
)
def test_shell_patterns(pattern: str, text: str, matched: bool | None) -> None:  # noqa: FBT001
    assert glob.valid(pattern) is (matched is not None)
    if matched is not None:
        assert glob.matches(pattern, text) is matched


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_is_a_pattern_or_is_not(pattern: str, text: str) -> None:
    if glob.valid(pattern):
        glob.matches(pattern, text)


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ("y", True),
        ("n", False),
        ("on", True),
        ("2026-01-01", "2026-01-01"),
        ("", None),
        ("a: 1\na: 2", {"a": 2}),
    ],
)
def test_yaml_is_read_as_the_plugin_reads_it(document: str, value: object) -> None:
    assert go_yaml.load(document) == value


def test_a_document_of_aliases_is_rejected_in_no_time() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
        for before, name in zip("abcdefghijkl", "bcdefghijklm", strict=True)
    )
    with pytest.raises(InvalidDocument):
        weights({"affinity": bomb})


@given(st.text(max_size=40))
def test_any_annotation_is_a_document_or_is_rejected(text: str) -> None:
    try:
        go_yaml.load(text, strict=True)
    except InvalidDocument:
        return
