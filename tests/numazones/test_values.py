"""Values cannot be changed, can be sent to other processes, and give others by ``replace``."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from numazones.apimachinery import quantity
from numazones.kubelet.admission import admit
from numazones.kubelet.cpu_topology import CPUTopology
from tests.numazones.kubelet import building

MACHINE, POD = building.machine(), building.pod("u", building.container("c"))
EQUAL = [building.configuration(), MACHINE, POD, POD.demand(), quantity.parse("1Gi")]
VALUES = [*EQUAL, CPUTopology(MACHINE), building.node(), building.node().kubelet, admit(building.node(), POD)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_fields_cannot_be_set_or_deleted(value: Any) -> None:
    for field in fields(value):
        before = getattr(value, field.name)
        with pytest.raises(FrozenInstanceError):
            setattr(value, field.name, before)
        with pytest.raises(FrozenInstanceError):
            delattr(value, field.name)
        assert getattr(value, field.name) == before


@pytest.mark.parametrize("value", EQUAL, ids=lambda value: type(value).__name__)
def test_copies_and_what_is_read_from_a_pickle_are_equal(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == copy.copy(value) == copy.deepcopy(value) == value  # noqa: S301
    assert hash(pickle.loads(pickle.dumps(value))) == hash(value)  # noqa: S301


def test_tables_are_made_once_and_anew_for_another_value() -> None:
    machine = building.machine()
    assert machine.cpus_of_core is machine.cpus_of_core
    fewer = replace(machine, cpus=machine.cpus[:1])
    assert fewer.all_cpus == 1 << machine.cpus[0].id
    assert fewer.cpus_of_core != machine.cpus_of_core


def test_defaults_of_values_are_not_shared() -> None:
    configuration = type(building.configuration())
    assert configuration() == configuration()
    assert configuration(release=building.configuration(version="1.32").release) != configuration()
