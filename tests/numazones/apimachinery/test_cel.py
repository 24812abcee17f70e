"""Expressions beyond the reference vectors: limits, what cannot be evaluated, and hostile texts."""

import string
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.apimachinery.cel.environment import Environment, InvalidExpression
from numazones.apimachinery.cel.values import Failure, Unsupported

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
        ("texts.sum()", "no matching overload for 'sum'"),
        ("nosuch", "undeclared reference to 'nosuch'"),
    ],
)
def test_expressions_that_kubernetes_refuses_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message.replace("(", r"\(")):
        PLAIN.compile(text)


def test_an_evaluation_beyond_its_cost_is_given_up() -> None:
    program = PLAIN.compile(f"{TEN}.all(x, {TEN}.all(y, {TEN}.all(z, x + y + z >= 0)))").program
    found, cost = program.evaluate({}, limit=1000)
    assert isinstance(found, Failure)
    assert (found.message, cost) == ("operation cancelled: actual cost limit exceeded", 1001)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("texts.all(i, t, t != '')", "a comprehension with two variables"),
        ("'aaa'.find('(a+)+b') == ''", "a regular expression as complex as"),
        ("optional.of(1)" + ".optMap(x, x + 1)" * 9, "optMap and optFlatMap more than 8 times"),
        ("'a'" + ".replace('a', 'aaaaaaaaaa')" * 9, "a text or list of more than a million elements"),
    ],
)
def test_what_cannot_be_evaluated_is_named(text: str, name: str) -> None:
    with pytest.raises(Unsupported) as error:
        value(text, texts=("u",))
    assert name in str(error.value)


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
