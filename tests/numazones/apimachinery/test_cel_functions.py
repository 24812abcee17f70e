"""Functions of CEL and of Kubernetes' libraries for it, as cel-go 0.26 and Kubernetes 1.36 have them."""

import math
import re
from typing import Any

import pytest

from numazones.apimachinery.cel.environment import Environment
from numazones.apimachinery.cel.values import Failure, Opaque

PLAIN = Environment({"a": "dyn"})
HOLDS = """
1 + 2 * 3 == 7
-dyn(duration('1h')) == duration('-1h') && duration('-90m') == duration('0') - duration('1h30m')
dyn(duration('1h')) in [duration('60m')] && dyn(1) in [[1], []].flatten() && !(dyn([2]) in [[1], []])
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
string(0.0 / 0.0) == 'NaN' && string(1.0 / 0.0) == '+Inf' && string(-1.0 / 0.0) == '-Inf'
string(123456.0) == '123456' && string(1234567.5) == '1.2345675e+06' && string(1e21) == '1e+21'
string(0.0001) == '0.0001' && string(-0.00001) == '-1e-05' && string(-0.0) == '-0'
string(duration('1h30m')) == '5400s' && string(duration('-1500ms')) == '-1.5s'
string(timestamp('2026-01-01T00:00:00Z')) == '2026-01-01T00:00:00Z'
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
'hello'.indexOf('x', 9) == -1 && 'hello'.indexOf('', 9) == 9 && 'hello'.lastIndexOf('') == 5
'hello'.lastIndexOf('o', 9) == -1 && 'hello'.lastIndexOf('', 2) == 2
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
'%.2f'.format([2.0]) == '2.00' && '%f'.format([1234567.5]) == '1,234,567.500000'
'%e'.format([1500.0]) == '1.500000\\u202f\\u00d7\\u202f10\\u2070\\u00b3'
'%.0e'.format([0.2]) == '2\\u202f\\u00d7\\u202f10\\u207b\\u2070\\u00b9'
'%f %e %f'.format([0.0 / 0.0, 1.0 / 0.0, -1.0 / 0.0]) == 'NaN \\u221e -\\u221e'
'%b %o'.format([5, 8]) == '101 10' && '%x %X'.format([255, 255]) == 'ff FF' && '%X'.format(['hi']) == '6869'
'%s'.format([[1, 2]]) == '[1, 2]' && '%s'.format([null]) == 'null' && '%s'.format([true]) == 'true'
'%s %s'.format([type(1), duration('90s')]) == 'int 90s' && '%X'.format([b'hi']) == '6869'
'%s %s'.format([['a'], [2.5]]) == '["a"] [2.500000]' && '%s'.format([[0.0 / 0.0]]) == '["NaN"]'
'%s %s'.format([[b'x'], [[null]]]) == '[b"x"] [[null]]'
'%s'.format([[duration('90s')]]) == '[duration("90s")]'
'%s'.format([[timestamp('2026-01-01T00:00:00.5Z')]]) == '[timestamp("2026-01-01T00:00:00.5Z")]'
[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0 && [2u].sum() == 2u
[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && ['b', 'a'].min() == 'a'
[1, 2, 2].isSorted() && ![2, 1].isSorted()
[3, 1, 2].sort() == [1, 2, 3] && [].sort() == [] && [1, 2, 1].distinct() == [1, 2]
[[[1]], [[2]]].flatten() == [[1], [2]] && [[[1]], [[2]]].flatten(2) == [1, 2] && [1, 2, 3].slice(1, 2) == [2]
sets.contains([1, 2], [2]) && !sets.contains([1], [2])
sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && sets.equivalent([1, 2], [2, 1, 1])
optional.of(1).hasValue() && !optional.none().hasValue() && optional.of(1).value() == 1
optional.ofNonZeroValue(0).hasValue() == false && optional.ofNonZeroValue('x').value() == 'x'
optional.none().or(optional.of(2)).value() == 2 && optional.of(1).orValue(3) == 1
{'k': 1}[?'k'].orValue(0) == 1 && {'k': 1}[?'x'].orValue(9) == 9 && [1][?5].orValue(7) == 7
[1][?0].value() == 1
[?{'k': 1}.?k, ?{'k': 1}.?x] == [1] && {'a': 1, ?'a': {'k': 2}.?k} == {'a': 2}
{'a': 1, ?'a': {'k': 2}.?x} == {} && {'a': 1, 'a': 2} == {'a': 2}
optional.of(1) == optional.of(1) && optional.none() == optional.none() && optional.of(1) != optional.none()
dyn(optional.of(1)) != dyn(1) && has({'k': {'l': 1}}.?k.l)
!has({'k': {'l': 1}}.?x.l) && !has(dyn(1).k)
!{'k': 1}.?x.hasValue() && {'k': {'l': [7]}}.?k.l[0].value() == 7 && !{'k': {'l': 7}}.?x.l.hasValue()
optional.of(2).optMap(x, x + 1).value() == 3 && !optional.none().optMap(x, x).hasValue()
optional.of(2).optFlatMap(x, optional.of(x + 1)).value() == 3
timestamp('2026-11-27T20:12:34.567Z').getFullYear() == 2026
timestamp('2026-11-27T20:12:34Z').getMonth() == 10
timestamp('2026-11-27T20:12:34Z').getDate() == 27 && timestamp('2026-11-27T20:12:34Z').getDayOfMonth() == 26
timestamp('2026-11-27T20:12:34Z').getDayOfWeek() == 5 && timestamp('2026-01-03T00:00:00Z').getDayOfYear() == 2
timestamp('2026-11-27T20:12:34Z').getHours() == 20 && timestamp('2026-11-27T20:12:34Z').getMinutes() == 12
timestamp('2026-11-27T20:12:34.567Z').getSeconds() == 34
timestamp('2026-11-27T20:12:34Z').getHours('-08:30') == 11
timestamp('2026-11-27T20:12:34Z').getDate('05:00') == 28
timestamp('2026-11-27T20:12:34Z').getHours('UTC') == 20
timestamp('2026-11-27T20:12:34Z').getHours('') == 20
timestamp('2026-11-27T20:12:34.567Z').getMilliseconds() == 567
duration('90m').getHours() == 1 && duration('90m').getMinutes() == 90 && duration('1m').getSeconds() == 60
[1, 2].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2].exists_one(x, x == 2) && {'a': 1}.all(k, k == 'a')
[1, 2].map(x, x > 1, x * 10) == [20] && [1, 2].filter(x, x > 1) == [2]
(true ? 1 : 2) == 1 && (false ? 1 : 2) == 2 && has({'a': 1}.a) && !has({'a': 1}.b)
quantity('1Gi').isGreaterThan(quantity('1Mi')) && quantity('1500m').compareTo(quantity('1.5')) == 0
quantity('2').add(quantity('3')).asInteger() == 5 && quantity('2').add(3) == quantity('5')
quantity('5').sub(3).asApproximateFloat() == 2.0 && sign(quantity('50k')) == 1 && sign(quantity('-1')) == -1
isQuantity('1Gi') && !isQuantity('x') && quantity('1').isInteger() && !quantity('1500m').isInteger()
isSemver('01.2', true) && !isSemver('1-rc', true) && !isSemver('1.2.3-') && !isSemver('') && !isQuantity(' 1')
semver('1.2.3') == semver('1.2.3+b') && semver('1.2.3') != semver('1.2.3-b') && {'a': 1} != dyn('a')
isSemver('1.2.3') && !isSemver('1.2') && semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2
semver('1.2.3').patch() == 3 && semver('2.0.0').isGreaterThan(semver('1.9.9'))
semver('1.0.0').compareTo(semver('1.0.0')) == 0 && semver('v1.0', true).major() == 1
isIP('10.0.0.1') && !isIP('x') && ip('10.0.0.1').family() == 4 && ip('::1').family() == 6
ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip.isCanonical('127.0.0.1')
ip('ff02::1').isLinkLocalMulticast() && !ip('ff05::1').isLinkLocalMulticast()
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
url('/p?k=a&k=b').getEscapedPath() == '/p' && url('/p?k=a&k=b').getQuery() == {'k': ['a', 'b']}
!isURL('http://a b') && !isURL('http://[::1') && url('http://[::1]:8/').getHostname() == '::1'
!isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08') && !isIP('fe80::1%eth0')
!isIP('::ffff:1.2.3.4')
'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == '' && '1 2 3'.findAll('[0-9]+', 2) == ['1', '2']
"""
FORMATTING = "error during formatting"
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
    ("-9223372036854775808 % a", -1, "integer overflow"),
    ("-9223372036854775808 / a", -1, "integer overflow"),
    ("a < 1.0", math.nan, "NaN values cannot be ordered"),
    ("1 <= a", math.nan, "NaN values cannot be ordered"),
    ("duration('2562047h') + duration(a)", "1h", "integer overflow"),
    ("duration('-2562047h') - duration(a)", "1h", "integer overflow"),
    ("timestamp('9999-12-31T23:59:59Z') + duration(a)", "1s", "timestamp overflow"),
    ("timestamp('0001-01-01T00:00:00Z') - duration(a)", "1s", "timestamp overflow"),
    ("timestamp('9999-12-31T23:59:59Z') - timestamp(a)", "0001-01-01T00:00:00Z", "integer overflow"),
    ("timestamp(a).getFullYear()", 10**15, "timestamp overflow"),
    ("timestamp(a)", "0001-01-01T00:00:00+01:00", "timestamp overflow"),
    ("int(a)", "9223372036854775808", "type conversion error from 'string' to 'int'"),
    ("int(a)", "9" * 5000, "type conversion error from 'string' to 'int'"),
    ("uint(a)", "18446744073709551616", "type conversion error from 'string' to 'uint'"),
    ("uint(a)", "+1", "type conversion error from 'string' to 'uint'"),
    ("uint(a)", 1e30, "unsigned integer overflow"),
    ("double(a)", "1e999", "type conversion error from 'string' to 'double'"),
    ("uint(a)", "x", "type conversion error from 'string' to 'uint'"),
    ("double(a)", "x", "type conversion error from 'string' to 'double'"),
    ("bool(a)", "x", "type conversion error from 'string' to 'bool'"),
    ("int(a)", 1e30, "integer overflow"),
    ("uint(a)", -1.5, "unsigned integer overflow"),
    ("string(a)", b"\xff", "invalid UTF-8 in bytes, cannot convert to string"),
    ("duration(a)", "x", "type conversion error from 'string' to 'google.protobuf.Duration'"),
    ("duration(a)", 3600, "type conversion error from 'int' to 'google.protobuf.Duration'"),
    ("duration(a)", "3000000h", "type conversion error from 'string' to 'google.protobuf.Duration'"),
    ("timestamp(a)", "x", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
    ("[1][a]", 3, "index out of bounds: 3"),
    ("[1][a]", "x", "unsupported index type 'string' in list"),
    ("{'a': 1}[a]", "b", "no such key: b"),
    ("a.charAt(9)", "abc", "index out of range: 9"),
    ("a.substring(9)", "abc", "index out of range: 9"),
    ("a.substring(2, 1)", "abc", "invalid substring range. start: 2, end: 1"),
    ("a.indexOf('a', -1)", "abc", "index out of range: -1"),
    ("a.lastIndexOf('a', -1)", "abc", "index out of range: -1"),
    ("optional.none().value() == a", 1, "optional.none() dereference"),
    ("a.min()", (), "min called on empty list"),
    ("a.max()", (1, "x"), "no such overload"),
    ("a.sum()", (1, "x"), "no such overload"),
    ("a.isSorted()", (1, "x"), "no such overload"),
    ("a.sort()", (1, "x"), "list elements must have the same type"),
    ("a.sort()", (1, 2.0), "list elements must have the same type"),
    ("a.sort()", ((1,),), "list elements must be comparable"),
    ("[1].flatten(a)", -1, "level must be non-negative"),
    ("[1].slice(a, 1)", -1, "cannot slice(-1, 1), negative indexes not supported"),
    ("[1].slice(a, 0)", 1, "cannot slice(1, 0), start index must be less than or equal to end index"),
    ("[1].slice(0, a)", 2, "cannot slice(0, 2), list is length 1"),
    ("a.join()", ("x", 1), "join: invalid input: 1"),
    ("'%d'.format([a])", "x", f"{FORMATTING}: decimal clause can only be used on integers, was given string"),
    ("'%f'.format([a])", 1, f"{FORMATTING}: fixed-point clause can only be used on doubles, was given int"),
    ("'%y'.format([a])", 1, 'could not parse formatting clause: unrecognized formatting clause "y"'),
    ("'%s'.format([a])", (b"\xff",), "invalid UTF-8 in bytes, cannot convert to string"),
    ("'%'.format([a])", 1, "unexpected end of string"),
    ("'%d %d'.format([a])", 1, "index 1 out of range"),
    ("[1 / a]", 0, "division by zero"),
    ("{'k': 1 / a}", 0, "division by zero"),
    ("{1 / a: 'k'}", 0, "division by zero"),
    ("{1: 'x'}[1 / a]", 0, "division by zero"),
    ("[1][?1 / a]", 0, "division by zero"),
    ("(1 / a == 1 ? {'k': 1} : {}).k", 0, "division by zero"),
    ("(1 / a == 1 ? {'k': 1} : {}).?k", 0, "division by zero"),
    ("has((1 / a == 1 ? {'k': 1} : {}).k)", 0, "division by zero"),
    ("1 / a in [1]", 0, "division by zero"),
    ("[1 / a].all(x, x == 1)", 0, "division by zero"),
    ("'x'.replace('x', string(1 / a))", 0, "division by zero"),
    ("true && 1 / a == 1", 0, "division by zero"),
    ("string(1 / a).matches('x')", 0, "division by zero"),
    ("[1][a]", Opaque("other.Type"), "unsupported index type 'other.Type' in list"),
    ("[?a.or(optional.of(2))]", 1, "cannot initialize optional list element from non-optional value 1"),
    ("{?'k': a.or(optional.of(2))}", 1, "cannot initialize optional entry 'k' from non-optional value 1"),
    ("a.all(x, x)", 1, "got 'types.Int', expected iterable type"),
    ("a.all(x, x)", None, "got 'types.Null', expected iterable type"),
    ("[1].all(x, a)", 1, "no such overload"),
    ("a + a", True, "no such overload"),
    ("a + a", {}, "no such overload: _+_"),
    ("a / a", "x", "no such overload: _/_"),
    ("a % a", 1.5, "no such overload: _%_"),
    ("quantity('1').add(a)", "x", "no such overload"),
    ("cidr('10.0.0.0/8').containsIP(a)", 1, "no such overload"),
    ("cidr('10.0.0.0/8').containsCIDR(a)", 1, "no such overload"),
    ("cidr('10.0.0.0/8').containsCIDR(a)", "x", 'netip.ParsePrefix("x")'),
    ("cidr('10.0.0.0/8').containsIP(a)", "x", 'ParseAddr("x"): unable to parse IP'),
    ("ip(a)", "1.2.3.256", 'ParseAddr("1.2.3.256"): IPv4 field has value >255'),
    ("semver(a)", "", "Version string empty"),
    ("semver(a)", "01.2.3", 'Major number must not contain leading zeroes "01"'),
    ("semver(a)", "1.2.x", 'Invalid character(s) found in patch number "x"'),
    ("semver(a)", "1.2.3-", "Prerelease is empty"),
    ("semver(a)", "1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
    ("semver(a)", "1.2.3+b_d", 'Invalid character(s) found in build meta data "b_d"'),
    ("semver(a, true)", "v1-rc", "short version cannot contain PreRelease/Build meta data"),
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
    *(
        "a.sort()",
        "a.distinct()",
        "a.flatten()",
        "a.slice(0, 1)",
        "'x'.replace('x', 'y', a)",
        "a.getHours('UTC')",
    ),
    *(
        "quantity(a)",
        "isQuantity(a)",
        "semver(a)",
        "isSemver(a)",
        "ip(a)",
        "cidr(a)",
        "url(a)",
        "a.findAll('x')",
    ),
    *(
        "'x'.findAll('x', a)",
        "'x'.substring(0, a)",
        "a.matches('x')",
        "a.indexOf('x', 1)",
        "a.lastIndexOf('x', 1)",
    ),
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
    found = value(text, a=operand)
    assert isinstance(found, str)
    assert found.endswith(message)


@pytest.mark.parametrize("text", OTHER_TYPES)
def test_functions_have_no_overload_for_null(text: str) -> None:
    assert re.search("no such|no matching|unsupported", value(text, a=None))
