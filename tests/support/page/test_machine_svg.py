"""The picture of a node for documents."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from kubectl_numazones.main import commands
from numazones import cpuset
from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.machine import Machine
from numazones.placement.occupancy import Holder, Occupancy
from numazones_page.machine_svg import machine_svg
from tests.numazones.kubelet import building
from tests.places import ROOT
from tests.support.page.clusters import dump, nodes_of

DUMP = ROOT / "tests/data/kubectl/dump.json"
GOLDEN = ROOT / "docs/assets/worker-1.svg"
SVG = "{http://www.w3.org/2000/svg}"


def test_tree_draws_the_guides_node() -> None:
    """Golden; after a change look at the picture, in light and dark, before you write it anew."""
    command = ["tree", "worker-1", "-f", str(DUMP), "-o", "svg"]
    result = CliRunner().invoke(commands, command, catch_exceptions=False)
    assert result.output == GOLDEN.read_text()


@pytest.mark.parametrize("node", nodes_of(dump(5)).values(), ids=lambda node: node.name)
def test_every_cpu_is_drawn_once_inside_the_picture(node: ClusterNode) -> None:
    assert node.state is not None
    occupancy = node.occupancy
    assert occupancy is not None
    root = ET.fromstring(machine_svg(node.name, occupancy))  # noqa: S314 - our own
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    drawn = [int(found[1]) for title in titles if (found := re.match(r"CPU (\d+): ", title))]
    assert sorted(drawn) == [cpu.id for cpu in node.state.machine.cpus]
    for box in root.iter(f"{SVG}rect"):
        right, bottom = (
            float(box.get(edge, 0)) + float(box.get(size, 0))
            for edge, size in (("x", "width"), ("y", "height"))
        )
        assert 0 < right <= 960
        assert 0 < bottom <= float(root.get("height", 0))
    for holder in occupancy.holders:
        assert titles.count(holder.name) == 2  # in the legend: beside its letter, and over its name
        for cpu in cpuset.ids(holder.cpus):
            assert f"CPU {cpu}: {holder.name}" in titles


def test_names_are_text_whatever_is_in_them() -> None:
    name = 'a/<script>alert("&")</script>\x00\ud800'
    occupancy = replace(empty(), holders=(Holder(name, cpus=0b10),))
    drawn = machine_svg(name, occupancy)
    root = ET.fromstring(drawn.encode())  # noqa: S314 - our own
    replaced = "\N{REPLACEMENT CHARACTER}" * 2
    assert next(root.iter(f"{SVG}title")).text == f'a/<script>alert("&")</script>{replaced}'
    assert not list(root.iter(f"{SVG}script"))


def test_long_names_are_shortened_with_full_titles() -> None:
    name = f"team/{'x' * 200}"
    drawn = machine_svg("node", replace(empty(), holders=(Holder(name, cpus=1),)))
    assert f"<title>{name}</title>team/{'x' * 40}…<" in drawn


def test_without_exclusive_cpus_all_are_shared() -> None:
    state = building.node(cpuManagerPolicy="none", topologyManagerPolicy="none", reservedSystemCPUs="")
    occupancy = ClusterNode("one").with_state(state).occupancy
    assert occupancy is not None
    drawn = machine_svg("one", occupancy)
    assert drawn.count('class="shared"') == len(occupancy.cpus) + 1
    assert "No container has exclusive CPUs." in drawn


def test_offline_cpus_are_drawn_and_amounts_shown_once() -> None:
    one = building.machine(1)
    cpus = tuple(cpu._replace(socket=cpu.core // 2) for cpu in one.cpus if cpu.id != 5)
    machine = Machine(cpus, (one.numa_nodes[0]._replace(offline=1 << 5),))
    occupancy = ClusterNode("one").with_state(building.node(machine)).occupancy
    assert occupancy is not None
    text = machine_svg("one", occupancy)
    assert text.count("<title>CPU 5: offline</title>") == 1
    assert text.count("0 of 15Gi") == 1
    assert "NUMA node 0, continued from socket 0" in text


def empty() -> Occupancy:
    occupancy = ClusterNode("one").with_state(building.node()).occupancy
    assert occupancy is not None
    return occupancy
