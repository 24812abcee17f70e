"""Functions of CEL and of Kubernetes' libraries for it, as their specifications define them."""

import re
from typing import Any

import pytest

from numazones.apimachinery.cel.environment import Environment
from numazones.apimachinery.cel.values import Failure

PLAIN = Environment({"a": "dyn"})
HOLDS = """
1 + 2 * 3 == 7
7 - 2 == 5 && 7u - 2u == 5u && 7.5 - 0.5 == 7.0
2u * 3u == 6u && 2.0 * 1.5 == 3.0
7u / 2u == 3u && 7 / 2 == 3 && 7.0 / 2.0 == 3.5
7u % 4u == 3u && 7 % -4 == 3
-(-3) == 3 && -(1.5) == -1.5
1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300
!(0.0 / 0.0 == 0.0 / 0.0)
'ab' + 'c' == 'abc' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]
1 < 2 && 1u <= 1u && 2.5 > 2.0 && 'b' >= 'a' && b'a' < b'b' && false < true
timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')
timestamp('2026-01-02T00:00:00Z') - duration('24h') == timestamp('2026-01-01T00:00:00Z')
duration('1h') + duration('30m') == duration('90m') && duration('1h') - duration('30m') == duration('30m')
duration('1h') + timestamp('2026-01-01T00:00:00Z') == timestamp('2026-01-01T01:00:00Z')
duration('1m') < duration('1h') && timestamp('2026-01-01T00:00:00Z') <= timestamp('2026-01-01T00:00:00Z')
1 in [1, 2] && !(3 in [1, 2]) && 'k' in {'k': 1} && !('x' in {'k': 1})
{'k': 1, 'l': 2}['l'] == 2 && [1, 2][1] == 2
{1: 'x'}[1] == 'x' && {'a': 1} == {'a': 1} && {'a': 1} != {'a': 2}
int(3u) == 3 && int(3.9) == 3 && int('-7') == -7 && int(4) == 4
int(timestamp('1970-01-01T00:01:00Z')) == 60
uint(3) == 3u && uint(3.9) == 3u && uint('7') == 7u && uint(2u) == 2u
double(3) == 3.0 && double(3u) == 3.0 && double('2.5') == 2.5 && double(1.5) == 1.5
string(3) == '3' && string(3u) == '3' && string(true) == 'true' && string(false) == 'false'
string(2.5) == '2.5' && string(b'abc') == 'abc' && string('x') == 'x'
bytes('abc') == b'abc' && bytes(b'x') == b'x'
bool('true') && !bool('false') && bool('1') && bool(true)
duration('1h30m') == duration(duration('90m')) && timestamp(timestamp('2026-01-01T00:00:00Z')).getHours() == 0
timestamp(60) == timestamp('1970-01-01T00:01:00Z')
type(1) == int && type('a') == string && type(1.5) == double && type(1u) == uint && type(null) == null_type
type([1]) == list && type({'a': 1}) == map && type(true) == bool && type(b'') == bytes
size('abc') == 3 && size([1, 2]) == 2 && size({'a': 1}) == 1 && size(b'ab') == 2 && 'abc'.size() == 3
'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.contains('ell') && 'hello'.matches('^h.*o$')
'hello'.charAt(1) == 'e' && 'hello'.charAt(5) == ''
'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('ello', 2) == 7 && 'hello'.indexOf('x') == -1
'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1
[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(3) == -1 && [1].lastIndexOf(3) == -1
'TacoCat'.lowerAscii() == 'tacocat' && 'TacoCat'.upperAscii() == 'TACOCAT'
'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'
'hello hello'.replace('he', 'we', 0) == 'hello hello'
'a b c'.split(' ') == ['a', 'b', 'c'] && 'a b c'.split(' ', 2) == ['a', 'b c'] && 'a b'.split(' ', 0) == []
'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc']
'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco'
'  trim  '.trim() == 'trim'
['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b'
'%s'.format(['x']) == 'x' && '%d'.format([3]) == '3' && '%%'.format([]) == '%'
'%.2f'.format([2.0]) == '2.00' && '%e'.format([1500.0]) == '1.500000e+03'
'%b %o'.format([5, 8]) == '101 10' && '%x %X'.format([255, 255]) == 'ff FF' && '%X'.format(['hi']) == '6869'
'%s'.format([[1, 2]]) == '[1, 2]' && '%s'.format([null]) == 'null' && '%s'.format([true]) == 'true'
[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0 && [2u].sum() == 2u
[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && ['b', 'a'].min() == 'a'
[1, 2, 2].isSorted() && ![2, 1].isSorted()
sets.contains([1, 2], [2]) && !sets.contains([1], [2])
sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && sets.equivalent([1, 2], [2, 1, 1])
optional.of(1).hasValue() && !optional.none().hasValue() && optional.of(1).value() == 1
optional.ofNonZeroValue(0).hasValue() == false && optional.ofNonZeroValue('x').value() == 'x'
optional.none().or(optional.of(2)).value() == 2 && optional.of(1).orValue(3) == 1
{'k': 1}[?'k'].orValue(0) == 1 && {'k': 1}[?'x'].orValue(9) == 9 && [1][?5].orValue(7) == 7
[1][?0].value() == 1
optional.of(2).optMap(x, x + 1).value() == 3 && !optional.none().optMap(x, x).hasValue()
optional.of(2).optFlatMap(x, optional.of(x + 1)).value() == 3
timestamp('2026-11-27T20:12:34.567Z').getFullYear() == 2026
timestamp('2026-11-27T20:12:34Z').getMonth() == 10
timestamp('2026-11-27T20:12:34Z').getDate() == 27 && timestamp('2026-11-27T20:12:34Z').getDayOfMonth() == 26
timestamp('2026-11-27T20:12:34Z').getDayOfWeek() == 5 && timestamp('2026-01-03T00:00:00Z').getDayOfYear() == 2
timestamp('2026-11-27T20:12:34Z').getHours() == 20 && timestamp('2026-11-27T20:12:34Z').getMinutes() == 12
timestamp('2026-11-27T20:12:34.567Z').getSeconds() == 34
timestamp('2026-11-27T20:12:34.567Z').getMilliseconds() == 567
duration('90m').getHours() == 1 && duration('90m').getMinutes() == 90 && duration('1m').getSeconds() == 60
[1, 2].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x == 2) && {'a': 1}.all(k, k == 'a')
[1, 2].map(x, x > 1, x * 10) == [20] && [1, 2].filter(x, x > 1) == [2]
(true ? 1 : 2) == 1 && (false ? 1 : 2) == 2 && has({'a': 1}.a) && !has({'a': 1}.b)
quantity('1Gi').isGreaterThan(quantity('1Mi')) && quantity('1500m').compareTo(quantity('1.5')) == 0
quantity('2').add(quantity('3')).asInteger() == 5 && quantity('2').add(3) == quantity('5')
quantity('5').sub(3).asApproximateFloat() == 2.0 && sign(quantity('50k')) == 1 && sign(quantity('-1')) == -1
isQuantity('1Gi') && !isQuantity('x') && quantity('1').isInteger() && !quantity('1500m').isInteger()
isSemver('1.2.3') && !isSemver('1.2') && semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2
semver('1.2.3').patch() == 3 && semver('2.0.0').isGreaterThan(semver('1.9.9'))
semver('1.0.0').compareTo(semver('1.0.0')) == 0 && semver('v1.0', true).major() == 1
isIP('10.0.0.1') && !isIP('x') && ip('10.0.0.1').family() == 4 && ip('::1').family() == 6
ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip.isCanonical('127.0.0.1')
ip('224.0.0.1').isLinkLocalMulticast() && ip('169.254.1.1').isLinkLocalUnicast()
ip('10.0.0.1').isGlobalUnicast()
isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8
cidr('10.1.0.0/8').masked() == cidr('10.0.0.0/8')
cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))
string(ip('10.0.0.1')) == '10.0.0.1' && cidr('10.0.0.0/8').ip() == ip('10.0.0.0')
string(cidr('10.0.0.0/8')) == '10.0.0.0/8'
isURL('https://h:80/p') && !isURL('h') && url('https://h:80/p?k=v').getScheme() == 'https'
url('https://h:80/p?k=v').getHost() == 'h:80' && url('https://h:80/p?k=v').getHostname() == 'h'
url('https://h:80/p?k=v').getEscapedPath() == '/p' && url('https://h/?k=v').getQuery() == {'k': ['v']}
'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == '' && '1 2 3'.findAll('[0-9]+', 2) == ['1', '2']
"""
FAILS = [
    ("1 / a", 0, "division by zero"),
    ("1 % a", 0, "modulus by zero"),
    ("-9223372036854775807 - a", 2, "integer overflow"),
    ("9223372036854775807 * a", 2, "integer overflow"),
    ("uint(a) - 1u", 0, "unsigned integer overflow"),
    ("18446744073709551615u + uint(a)", 1, "unsigned integer overflow"),
    ("18446744073709551615u * uint(a)", 2, "unsigned integer overflow"),
    ("1u / uint(a)", 0, "division by zero"),
    ("1u % uint(a)", 0, "modulus by zero"),
    ("uint(a)", -1, "unsigned integer overflow"),
    ("uint(a)", "x", "type conversion error from 'string' to 'uint'"),
    ("double(a)", "x", "type conversion error from 'string' to 'double'"),
    ("bool(a)", "x", "type conversion error from 'string' to 'bool'"),
    ("int(a)", 1e30, "integer overflow"),
    ("uint(a)", -1.5, "unsigned integer overflow"),
    ("string(a)", b"\xff", "invalid UTF-8 in bytes, cannot convert to string"),
    ("duration(a)", "x", 'time: invalid duration "x"'),
    ("timestamp(a)", "x", 'parsing time "x"'),
    ("[1][a]", 3, "index out of bounds: 3"),
    ("[1][a]", "x", "unsupported index type 'string' in list"),
    ("{'a': 1}[a]", "b", "no such key: b"),
    ("a.charAt(9)", "abc", "index out of range: 9"),
    ("a.substring(9)", "abc", "index out of range: 9"),
    ("a.substring(2, 1)", "abc", "invalid substring range. start: 2, end: 1"),
    ("a.indexOf('a', 9)", "abc", "index out of range: 9"),
    ("a.lastIndexOf('a', 9)", "abc", "index out of range: 9"),
    ("optional.none().value() == a", 1, "optional.none() dereference"),
    ("a.min()", (), "min called on empty list"),
    ("a.max()", (1, "x"), "no such overload"),
    ("a.sum()", (1, "x"), "no such overload"),
    ("'%d'.format([a])", "x", "error during formatting: unsupported %d of string"),
    ("'%d %d'.format([a])", 1, "index 1 out of range"),
]
OTHER_TYPES = (
    *("a + 1", "a - 1", "a * 2", "a / 2", "a % 2", "-a", "!a", "a < 1", "a[0]", "1 in a", "a.value()"),
    *("int(a)", "uint(a)", "double(a)", "string(a)", "bytes(a)", "bool(a)", "duration(a)", "timestamp(a)"),
    *("size(a)", "a.startsWith('x')", "a.charAt(1)", "a.indexOf('x')", "a.lastIndexOf('x')", "a.join()"),
    *(
        "a.replace('x', 'y')",
        "a.split('x')",
        "a.substring(1)",
        "a.trim()",
        "a.lowerAscii()",
        "'%s'.format(a)",
    ),
    *("a.sum()", "a.min()", "a.isSorted()", "sets.contains(a, [1])", "a.getFullYear()", "a.getHours()"),
    *("a.isLessThan(quantity('1'))", "a.family()", "a.getHost()", "a.major()", "a.find('x')", "a.masked()"),
)


def value(text: str, **values: Any) -> Any:
    """Evaluate an expression; return its value or the text of its failure."""
    found, _ = PLAIN.compile(text).program.evaluate(values)
    return found.message if isinstance(found, Failure) else found


@pytest.mark.parametrize("text", HOLDS.strip().splitlines())
def test_functions_have_the_values_of_their_specification(text: str) -> None:
    assert value(text) is True


@pytest.mark.parametrize(("text", "operand", "message"), FAILS)
def test_functions_fail_as_their_specification_says(text: str, operand: object, message: str) -> None:
    assert value(text, a=operand) == message


@pytest.mark.parametrize("text", OTHER_TYPES)
def test_functions_have_no_overload_for_null(text: str) -> None:
    assert re.search("no such|no matching|unsupported", value(text, a=None))
