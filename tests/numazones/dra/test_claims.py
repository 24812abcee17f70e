"""Allocations of ResourceClaims, and what they promise of NUMA nodes."""

from typing import Any

from numazones.dra.claims import DeviceClaim
from tests.numazones.dra.building import claim, result

NUMA = "resource.kubernetes.io/numaNode"


def test_an_allocation_names_device_share_and_amounts() -> None:
    body = claim(
        result(
            "cpudevnuma000",
            driver="dra.cpu",
            request="cpus/few",
            shareID="7d2a",
            consumedCapacity={"cpu": "4", "dra.cpu/other": "1"},
        ),
        result("gpu-0", adminAccess=True),
        pods=("uid-1",),
    )
    found = DeviceClaim.from_api(body)
    cpus, gpu = found.allocations
    assert cpus.device == ("dra.cpu", "worker-1", "cpudevnuma000")
    assert (cpus.request, cpus.main_request, cpus.share) == ("cpus/few", "cpus", "7d2a")
    assert {name: amount.value() for name, amount in cpus.consumed.items()} == {
        "cpu": 4,
        "dra.cpu/other": 1,
    }
    assert (cpus.admin, gpu.admin) == (False, True)
    assert found.pods == {"uid-1"}


def test_a_claim_that_waits_has_no_allocation() -> None:
    found = DeviceClaim.from_api(claim())
    assert (found.allocated, found.allocations) == (False, ())


def request(name: str) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example"}}


def test_a_template_is_read_as_the_claim_that_it_makes() -> None:
    inner = claim(requests=[request("gpu")], constraints=[{"matchAttribute": NUMA}])
    template = {"metadata": {"name": "t", "namespace": "team"}, "spec": {"spec": inner["spec"]}}
    found = DeviceClaim.from_api(template)
    assert found.requests[0].classes == ("gpu.example",)


def test_alternatives_name_several_classes() -> None:
    choices = [{"name": "big", "deviceClassName": "a"}, {"name": "small", "deviceClassName": "b"}]
    found = DeviceClaim.from_api(claim(requests=[{"name": "gpu", "firstAvailable": choices}]))
    assert found.requests[0].classes == ("a", "b")
