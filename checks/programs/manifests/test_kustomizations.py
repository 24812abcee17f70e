"""Rules that every kustomization of the project follows; combinations of its components."""

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.manifests.kustomizations import (
    COMPONENTS,
    MANIFESTS,
    Facts,
    composition,
    documents,
    facts,
    rendered,
    rendered_together,
)
from tests.places import ROOT

FOLDERS = sorted(
    file.parent for file in [*MANIFESTS.rglob("kustomization.yaml"), ROOT / "crds/kustomization.yaml"]
)
# Kinds of this project and of the Prometheus operator; the API server of a test knows the former.
FOREIGN = {"CustomResourceDefinition", "PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_kustomization_lists_exactly_the_files_in_its_folder(folder: Path) -> None:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    listed = {
        *kustomization.get("resources", ()),
        *(patch["path"] for patch in kustomization.get("patches", ())),
        *(file for item in kustomization.get("configMapGenerator", ()) for file in item["files"]),
    }
    assert {path.name for path in folder.iterdir() if path.is_file()} - {"kustomization.yaml"} <= listed
    for name in listed:
        assert (folder / name).exists(), name


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=f"{folder.name}-{document['kind']}-{document['metadata']['name']}")
        for folder in FOLDERS
        for document in documents(folder)
        if document["kind"] not in FOREIGN
    ],
)
def test_every_object_is_valid_for_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.36", strict=True)


# Of two there is a test of its own.
CHOICES = [
    choice for size in (0, 1, *range(3, len(COMPONENTS) + 1)) for choice in combinations(COMPONENTS, size)
]


def beyond(plain: Facts, extended: Facts) -> Facts:
    """Return what a component adds; everything that was there without it must be unchanged."""
    assert {path: extended.get(path) for path in plain} == plain
    return {path: fact for path, fact in extended.items() if path not in plain}


# Without the definitions, which no component touches and which take most of the time.
PROGRAMS = ("exporter", "operator")


def facts_with(components: Sequence[str], folder: Path) -> Facts:
    return facts(rendered(composition(folder, components, of=PROGRAMS)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return facts_with([], tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def added(plain: Facts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """Return what each component adds by itself."""
    folder = tmp_path_factory.mktemp("alone")
    return {component: beyond(plain, facts_with([component], folder)) for component in COMPONENTS}


@pytest.fixture(scope="module")
def expected(plain: Facts, added: dict[str, Facts]) -> Callable[[Sequence[str]], Facts]:
    """Return the expected result of some components: what each adds by itself, and nothing else."""

    def sum_of(components: Sequence[str]) -> Facts:
        found = dict(plain)
        for component in components:
            assert added[component]
            found |= added[component]
        return found

    return sum_of


def in_an_order_of_its_own(choice: Sequence[str]) -> Sequence[str]:
    """All orders of seven would be thousands of compositions."""
    return random.Random(str(choice)).sample(choice, len(choice))


PAIRS = list(permutations(COMPONENTS, 2))
ORDERS = [*map(in_an_order_of_its_own, CHOICES), *PAIRS]
TOGETHER = 5
"""How many compositions one kubectl renders; of more, each takes longer."""


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], Facts]:
    """Build kustomizations of some components, in their order."""

    @cache
    def batch(number: int) -> list[Facts]:
        orders = ORDERS[number * TOGETHER :][:TOGETHER]
        together = rendered_together(tmp_path_factory.mktemp("together"), orders, of=PROGRAMS)
        return [facts(objects) for objects in together]

    def facts_of(order: Sequence[str]) -> Facts:
        number, place = divmod(ORDERS.index(order), TOGETHER)
        return batch(number)[place]

    return facts_of


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: ",".join(map(str, choice)))
def test_components_compose_in_every_choice(
    choice: tuple[str, ...],
    expected: Callable[[Sequence[str]], Facts],
    composed: Callable[[Sequence[str]], Facts],
) -> None:
    order = in_an_order_of_its_own(choice)
    assert composed(order) == expected(choice), order


@pytest.mark.parametrize("pair", PAIRS, ids=",".join)
def test_two_components_compose_whichever_comes_first(
    pair: tuple[str, ...],
    expected: Callable[[Sequence[str]], Facts],
    composed: Callable[[Sequence[str]], Facts],
) -> None:
    assert composed(pair) == expected(pair)


def test_the_composition_of_the_project_offers_every_component() -> None:
    text = (MANIFESTS / "kustomization.yaml").read_text()
    offered = yaml.safe_load(text.replace("  # - ", "  - "))
    assert sorted(offered["components"]) == COMPONENTS
    assert yaml.safe_load(text)["components"] is None


def test_what_messages_tell_people_to_apply_is_there() -> None:
    named = {
        found
        for program in ("operator", "exporter", "kubectl", "lab", "support", "numazones")
        for file in (ROOT / program).rglob("*.py")
        for found in re.findall(r"\bmanifests(?:/[\w-]+)+", file.read_text())
    }
    assert len(named) > 3
    assert [path for path in sorted(named) if not (ROOT / path / "kustomization.yaml").exists()] == []
