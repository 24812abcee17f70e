"""Expressions beyond the reference vectors: limits, what cannot be evaluated, and hostile texts."""

import re
import string
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.apimachinery.cel.environment import Environment, InvalidExpression
from numazones.apimachinery.cel.syntax_tree import decode
from numazones.apimachinery.cel.values import Failure, Lazy, Unsupported

PLAIN = Environment({"a": "dyn", "texts": "[string]"})
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"


def value(text: str, **values: Any) -> Any:
    """The value of an expression; the text of its failure."""
    found, _ = PLAIN.compile(text).program.evaluate(values)
    return found.message if isinstance(found, Failure) else found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b[1] + a.b[0]", 3),
        ("a.?c.orValue(7)", 7),
        ("has(a.c) || a.b.exists(x, x == 2)", True),
        ("a.c == 1 || true", True),
        ("a.c == 1", "no such key: c"),
        ("a.b.map(x, x * 2).filter(x, x > 2)", (4,)),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("9223372036854775807 + a.b[0]", "integer overflow"),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && ip('::1').isLoopback()", True),
        ("url('https://h.example:8080/p?q=1').getPort()", "8080"),
        ("quantity('1Gi').sub(quantity('1Mi')).isLessThan(quantity('1Gi'))", True),
        ("semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))", True),
        ("timestamp('2026-01-01T00:00:00Z') + duration('24h') == timestamp('2026-01-02T00:00:00Z')", True),
        ("'%s has %d'.format(['x', 3])", "x has 3"),
        ("texts.join('-')", "u-v"),
    ],
)
def test_values_are_those_of_kubernetes(text: str, expected: object) -> None:
    assert value(text, a={"b": (1, 2)}, texts=("u", "v")) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantity('1') < quantity('2')", "no matching overload for '_<_'"),
        ("quantity('1').isLessThan('2')", "no matching overload for 'isLessThan'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("'a'.matches('[')", "invalid matches argument"),
        ("int('x') == 1", "type conversion error from 'string' to 'int'"),
        ("[[1], ['a']]", "expected type 'list(int)' but found 'list(string)'"),
        ("[{'k': 1}, {'k': 'a'}]", "expected type 'map(string, int)' but found 'map(string, string)'"),
        ("size(1)", "found no matching overload for 'size' applied to '(int)'"),
        ("texts.contains('u')", "applied to 'list(string).(string)'"),
        ("duration('3000000h')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("texts.sum()", "no matching overload for 'sum'"),
        ("nosuch", "undeclared reference to 'nosuch'"),
    ],
)
def test_expressions_that_kubernetes_refuses_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=re.escape(message)):
        PLAIN.compile(text)


@pytest.mark.parametrize(
    ("text", "use", "expected"),
    [
        ("texts.map(t, size(t))", "v.sum()", 2),
        ("{'k': size(texts)}", "v.k + v['k']", 4),
        ("quantity('1')", "v.add(quantity('2')).asInteger()", 3),
        ("size(texts)", "v + 1", 3),
    ],
)
def test_variable_has_type_and_value_of_its_expression(text: str, use: str, expected: int) -> None:
    found = PLAIN.compile(text)
    environment, evaluated = Environment({"v": found.type}), []

    def evaluate() -> Any:
        evaluated.append(text)
        return found.program.evaluate({"texts": ("u", "v")})[0]

    compiled = environment.compile(f"{use} == {expected} && {use} > 0")
    assert compiled.program.evaluate({"v": Lazy(evaluate)})[0] is True
    assert evaluated == [text]
    with pytest.raises(InvalidExpression, match="found no matching overload for 'trim'"):
        environment.compile("v.trim()")


def test_only_maps_that_stand_for_objects_may_mix_types() -> None:
    objects = Environment({"a": "dyn"}, object_key="type")
    made, _ = objects.compile("[{'type': 'x', 'number': 1}, {'type': 'y', 'list': [a, 1]}]").program.evaluate(
        {"a": 2}
    )
    assert made == ({"type": "x", "number": 1}, {"type": "y", "list": (2, 1)})
    with pytest.raises(InvalidExpression, match="expected type 'string' but found 'int'"):
        objects.compile("{'kind': 'x', 'number': 1}")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (f"{TEN}.all(x, {TEN}.all(y, {TEN}.all(z, x + y + z >= 0)))", 1000),
        (f"{TEN}.all(x, a)", 20),
        ("[a]", 10),
    ],
)
def test_evaluation_beyond_its_cost_is_given_up(text: str, limit: int) -> None:
    found, cost = PLAIN.compile(text).program.evaluate({"a": True}, limit=limit)
    assert isinstance(found, Failure)
    assert (found.message, cost) == ("operation cancelled: actual cost limit exceeded", limit + 1)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("texts.all(i, t, t != '')", "a comprehension with two variables"),
        ("'aaa'.find('(a+)+b') == ''", "a regular expression as complex as"),
        ("optional.of(1)" + ".optMap(x, x + 1)" * 9, "optMap and optFlatMap more than 8 times"),
        ("'a'" + ".replace('a', 'aaaaaaaaaa')" * 9, "a text or list of more than a million elements"),
        ("'%.9999999f'.format([1.5])", "a text or list of more than a million elements"),
        ("'%s'.format([{'a': 1}])", "a map in format"),
        ("[1].first()", "the function first"),
        ("{true: 1}", "a map with keys of the type bool"),
        ("google.protobuf.Duration{seconds: 1}", "an object of the type google.protobuf.Duration"),
        ("google.protobuf.Int64Value{value: 1}", "an object of the type google.protobuf.Int64Value"),
        ("lists.range(100000) == lists.range(100000)", "the comparison of values as large as these"),
        ("timestamp('2026-01-01T00:00:00Z').getHours('Asia/Tokyo')", "the time zone 'Asia/Tokyo'"),
        ("timestamp('9999-12-31T23:00:00Z').getHours('01:00')", "a time before the year 1 or after 9999"),
    ],
)
def test_what_cannot_be_evaluated_is_named(text: str, name: str) -> None:
    with pytest.raises(Unsupported) as error:
        value(text, texts=("u",))
    assert name in str(error.value)


@pytest.mark.parametrize("size", [48, 49])
def test_includes_searches_lists_of_at_most_48(size: int) -> None:
    environment = Environment({"a": "dyn"}, ("dyn.includes(dyn) bool",))
    compiled = environment.compile("a.includes(47) && 'x'.includes('x')")
    found, _ = compiled.program.evaluate({"a": tuple(range(size))})
    if size > 48:
        assert found.message == "includes: list has 49 elements, more than 48"
    else:
        assert found is True


def message(*fields: tuple[int, bytes]) -> bytes:
    """Write a protobuf message of fields that are messages or texts."""
    return b"".join(bytes((number << 3 | 2, len(value))) + value for number, value in fields)


CHECKED, PARSED = (
    (1, b"type.googleapis.com/cel.expr.CheckedExpr"),
    (1, b"type.googleapis.com/cel.expr.ParsedExpr"),
)
NAME = message((4, message((1, b"a"))))
TWO_VARIABLES = message((9, message((1, b"k"), (8, b"v"), *((number, NAME) for number in (2, 4, 5, 6, 7)))))


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (b"", "1"),
        (b"\x0b", "wire type 3"),
        (message(PARSED, (2, message((2, b"")))), "a part is of no known kind"),
        (message(CHECKED, (2, message((4, message((3, b"")))))), "a literal is of no known kind"),
        (message(CHECKED, (2, message((4, TWO_VARIABLES)))), "a comprehension has two variables"),
    ],
)
def test_expression_that_the_library_writes_otherwise_is_refused(written: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=f"wrote an expression in an unknown form: .*{problem}"):
        decode(written)


@pytest.mark.parametrize(
    ("number", "value", "kind"),
    [
        (3, b"", ("?",)),
        (6, message((1, message((14, message((1, b"net.IP")))))), ("list", ("net.IP",))),
        (9, b"other.Message", ("?",)),
        (11, message((1, b"")), ("type", ("dyn",))),
    ],
)
def test_types_of_parts_are_read(number: int, value: bytes, kind: tuple[object, ...]) -> None:
    of_part = b"\x08\x07" + message((2, message((number, value))))
    assert decode(message(CHECKED, (2, message((3, of_part), (4, NAME))))).types == {7: kind}


def test_import_error_of_the_library_makes_expressions_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(Unsupported, match=r"imported: import of cel_expr_python halted; .*pip install"):
        Environment({}).compile("true")


@given(st.text(alphabet=string.printable, max_size=40), st.integers(0, 60))
def test_no_text_does_more_than_be_refused_or_fail(noise: str, at: int) -> None:
    sound = 'texts.map(t, t + "x").exists(t, t.matches("^u")) && a.?b[0].orValue(1) == 1'
    for text in (noise, sound[:at] + noise + sound[at:], sound[:at] + sound[at + len(noise) :]):
        try:
            value(text, a={"b": (1, 2)}, texts=("u", "v"))
        except (InvalidExpression, Unsupported) as error:
            assert str(error)  # noqa: PT017 - either is as good
