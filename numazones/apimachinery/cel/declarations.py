"""Signatures of the functions that Kubernetes declares beyond standard CEL, for the checker.

One line a function: ``name(parameters) result``, a method with its target before a dot. ``[x]`` is a list,
``T`` any type. Versions are those of ``k8s.io/apiserver/pkg/cel/environment/base.go`` at 1.35, which 1.36
uses for stored expressions.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

TYPES = {
    "quantity": "kubernetes.Quantity",
    "semver": "kubernetes.Semver",
    "address": "net.IP",
    "network": "net.CIDR",
    "address_url": "kubernetes.URL",
}
"""Names of types here → in the language."""

_SIGNATURES = """
quantity(string) quantity
isQuantity(string) bool
sign(quantity) int
quantity.isInteger() bool
quantity.asInteger() int
quantity.asApproximateFloat() double
quantity.add(quantity) quantity
quantity.add(int) quantity
quantity.sub(quantity) quantity
quantity.sub(int) quantity
quantity.compareTo(quantity) int
quantity.isLessThan(quantity) bool
quantity.isGreaterThan(quantity) bool
semver(string) semver
semver(string, bool) semver
isSemver(string) bool
isSemver(string, bool) bool
semver.major() int
semver.minor() int
semver.patch() int
semver.compareTo(semver) int
semver.isLessThan(semver) bool
semver.isGreaterThan(semver) bool
ip(string) address
isIP(string) bool
ip.isCanonical(string) bool
address.family() int
address.isUnspecified() bool
address.isLoopback() bool
address.isLinkLocalMulticast() bool
address.isLinkLocalUnicast() bool
address.isGlobalUnicast() bool
cidr(string) network
isCIDR(string) bool
network.containsIP(string) bool
network.containsIP(address) bool
network.containsCIDR(string) bool
network.containsCIDR(network) bool
network.ip() address
network.masked() network
network.prefixLength() int
url(string) address_url
isURL(string) bool
address_url.getScheme() string
address_url.getHost() string
address_url.getHostname() string
address_url.getPort() string
address_url.getEscapedPath() string
address_url.getQuery() {[string]}
string.find(string) string
string.findAll(string) [string]
string.findAll(string, int) [string]
string.charAt(int) string
string.indexOf(string) int
string.indexOf(string, int) int
string.lastIndexOf(string) int
string.lastIndexOf(string, int) int
string.lowerAscii() string
string.upperAscii() string
string.replace(string, string) string
string.replace(string, string, int) string
string.split(string) [string]
string.split(string, int) [string]
string.substring(int) string
string.substring(int, int) string
string.trim() string
string.format([dyn]) string
strings.quote(string) string
[string].join() string
[string].join(string) string
[T].indexOf(T) int
[T].lastIndexOf(T) int
[T].distinct() [T]
[T].reverse() [T]
[T].slice(int, int) [T]
[[T]].flatten() [T]
[dyn].flatten(int) [dyn]
lists.range(int) [int]
sets.contains([T], [T]) bool
sets.equivalent([T], [T]) bool
sets.intersects([T], [T]) bool
"""
_ORDERED = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMED = ("int", "uint", "double", "duration")
_NUMBERS = ("int", "uint", "double")
_RELATIONS = ("_<_", "_<=_", "_>_", "_>=_")
_LINE = re.compile(r"(?:(\[.*\]|\w+)\.)?([\w.]+)\((.*)\) (\S+)")
_NAMESPACES = ("ip", "strings", "lists", "sets", "jsonpatch")


class Signature(NamedTuple):
    """One way to call a function."""

    name: str
    target: str
    """Type of the target; empty: it is no method."""
    parameters: tuple[str, ...]
    result: str


class Overload(NamedTuple):
    """A call that the checker lets pass, and the signatures of which it has to meet one.

    The CEL library cannot tell apart overloads that differ in types of Kubernetes or in elements of lists.
    Such are declared to it as one, and told apart afterwards (``environment``).
    """

    signature: Signature
    exact: tuple[Signature, ...]


def overloads(*more: str) -> Iterator[Overload]:
    """Yield what to declare; ``more``: lines for functions of one use of the language."""
    groups: dict[tuple[str, bool, int], list[Signature]] = {}
    for one in _signatures(more):
        if one.name in _RELATIONS:
            yield Overload(one, (one,))
            continue
        groups.setdefault((one.name, bool(one.target), len(one.parameters)), []).append(one)
    for found in groups.values():
        lists = [one for one in found if one.target.startswith("[")]
        for same in (lists, [one for one in found if one not in lists]):
            if same:
                yield Overload(_merged(same), tuple(same))


def _merged(found: list[Signature]) -> Signature:
    """One signature for several, which takes whatever one of them takes."""
    first = found[0]
    if len(found) == 1:
        return first
    targets, results = {one.target for one in found}, {one.result for one in found}
    elements = len(targets) > 1 and first.target.startswith("[")
    parameters = tuple(
        kinds.pop() if len(kinds := {one.parameters[at] for one in found}) == 1 else "dyn"
        for at in range(len(first.parameters))
    )
    result = first.result if len(results) == 1 else "[T]" if first.result.startswith("[") else "T"
    target = first.target if len(targets) == 1 else "[T]" if elements else "dyn"
    return Signature(first.name, target, parameters, result)


def _signatures(more: tuple[str, ...]) -> Iterator[Signature]:
    for line in (*_SIGNATURES.split("\n"), *more):
        if not line:
            continue
        target, name, parameters, result = _LINE.fullmatch(line).groups()  # type: ignore[union-attr]
        if target in _NAMESPACES:
            target, name = "", f"{target}.{name}"
        yield Signature(name, target or "", tuple(filter(None, parameters.split(", "))), result)
    for kind in _ORDERED:
        yield Signature("isSorted", f"[{kind}]", (), "bool")
        for name in ("min", "max"):
            yield Signature(name, f"[{kind}]", (), kind)
        yield Signature("sort", f"[{kind}]", (), f"[{kind}]")
    for kind in _SUMMED:
        yield Signature("sum", f"[{kind}]", (), kind)
    for relation, *kinds in product(_RELATIONS, _NUMBERS, _NUMBERS):
        if kinds[0] != kinds[1]:
            yield Signature(relation, "", tuple(kinds), "bool")
