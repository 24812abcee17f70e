"""Kinds that a cluster may do without: whoever needs one is told when a definition serves it."""

import asyncio
from typing import Any

import pytest

from numazones_client import Resource
from numazones_operator.mirror import definitions
from numazones_operator.mirror.definitions import Definition, Definitions
from tests.waiting import eventually

WIDGETS = Resource("example.com", "v1", "widgets")


def definition(name: str = "widgets", *, established: bool = True, served: bool = True) -> Definition:
    body: dict[str, Any] = {
        "metadata": {"name": f"{name}.example.com"},
        "spec": {"versions": [{"name": "v1", "served": served}, {"name": "v1alpha1", "served": True}]},
        "status": {"conditions": [{"type": "Established", "status": str(established)}]},
    }
    return Definition.from_api(body)


def test_a_definition_serves_its_versions_once_it_is_established() -> None:
    assert definition() == Definition("widgets.example.com", frozenset({"v1", "v1alpha1"}))
    assert definition(served=False).versions == {"v1alpha1"}
    assert definition(established=False).versions == frozenset()
    bare = {"metadata": {"name": "x"}, "spec": {"versions": [{"name": "v1", "served": True}]}}
    assert Definition.from_api(bare).versions == frozenset()


async def test_waiters_for_a_kind_hear_only_of_its_definition() -> None:
    found = Definitions(known=lambda: True)
    waits = [asyncio.create_task(found.appearance(WIDGETS)) for _ in range(2)]
    await eventually(lambda: len(found._waiting) == 2)
    for other in (definition("gadgets"), definition(established=False), definition(served=False)):
        found.table.put(other)
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    found.table.put(definition())
    await asyncio.gather(*waits)
    assert not found._waiting
    await found.appearance(WIDGETS)  # there already: worth asking at once


@pytest.mark.parametrize(("known", "asked"), [(True, "_RARELY"), (False, "_OFTEN")])
async def test_undefined_kinds_are_polled_and_more_often_without_the_right(
    known: bool,  # noqa: FBT001 - a parameter of the test
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(definitions, asked, 0.0)
    await Definitions(known=lambda: known).appearance(WIDGETS)
