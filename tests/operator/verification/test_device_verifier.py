"""Devices that were foreseen, compared with those that the scheduler allocated."""

from collections.abc import Sequence
from typing import Any

import pytest

from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result
from tests.operator.offline_pipeline import OfflinePipeline

NODE = "node"


class Allocating:
    """A node with three GPUs, pods that claim some, and a scheduler that allocates them."""

    def __init__(self) -> None:
        self.setting = OfflinePipeline()
        self.setting.add_node()
        self.setting.pipeline.synced = True
        self.devices = self.setting.state.devices
        self.devices.classes.put(DeviceClass.from_api(device_class(GPU, f'device.driver == "{GPU}"')))
        self.publish("gpu-0", "gpu-1", "gpu-2")

    def publish(self, *names: str) -> None:
        body = resource_slice(*(device(name, 0) for name in names), node=NODE, pool=NODE)
        self.devices.slices.put(Slice.from_api(body))

    def pod(self, name: str, claims: Sequence[str]) -> None:
        """A pod, and its claims without an allocation."""
        for one in claims:
            self.write(one)
        named = [{"name": one, "resourceClaimName": one} for one in claims]
        self.setting.put_pod(name, resourceClaims=named)

    def write(self, name: str, *gpus: str, pod: str = "") -> None:
        """A claim as the API server shows it."""
        results = [result(gpu, pool=NODE) for gpu in gpus]
        body = claim(*results, name=name, pods=(f"uid-{pod}",) if pod else ())
        body["metadata"]["namespace"] = "default"
        self.devices.claims.put(DeviceClaim.from_api(body))

    def counted(self) -> dict[str, float]:
        return {
            sample.labels["accuracy"]: sample.value
            for metric in self.setting.metrics.accuracy.collect()
            for sample in metric.samples
            if sample.labels.get("model") == "dra" and sample.name.endswith("_total") and sample.value
        }

    def later(self, seconds: float) -> dict[str, float]:
        self.setting.clock.now += seconds
        self.setting.pipeline.explain_misses()
        return self.counted()


@pytest.fixture
def cluster() -> Allocating:
    return Allocating()


def test_exactly_the_foreseen_devices_are_right(cluster: Allocating) -> None:
    cluster.pod("train", ["a", "b"])
    cluster.write("a", "gpu-0", pod="train")
    assert cluster.counted() == {}
    cluster.write("b", "gpu-1", pod="train")
    assert cluster.counted() == {"right": 1}


def test_another_device_that_nothing_explains_is_held_against_the_model(
    cluster: Allocating, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.pod("train", ["a"])
    cluster.later(60)
    cluster.write("a", "gpu-2", pod="train")
    assert cluster.later(20) == {}
    assert cluster.later(20) == {"model": 1}
    assert "predicted node/gpu.example/gpu-0; allocated gpu.example/node/gpu-2; cause: model" in caplog.text


def later_for_another(cluster: Allocating) -> None:
    cluster.write("a", "gpu-1", pod="train")
    cluster.write("other", "gpu-0")


def freed_before(cluster: Allocating) -> None:
    cluster.write("other")
    cluster.write("a", "gpu-1", pod="train")


def published_before(cluster: Allocating) -> None:
    cluster.publish("gpu-1", "gpu-0", "gpu-2")
    cluster.write("a", "gpu-0", pod="train")


@pytest.mark.parametrize("race", [later_for_another, freed_before, published_before])
def test_what_changed_a_moment_before_is_a_race(cluster: Allocating, race: Any) -> None:
    if race is freed_before:
        cluster.write("other", "gpu-0")
    cluster.pod("train", ["a"])
    cluster.later(60)
    race(cluster)
    assert cluster.later(1) == {"race": 1}
    assert cluster.later(100) == {"race": 1}


def test_devices_that_could_not_be_foreseen_count_as_unknown(cluster: Allocating) -> None:
    cluster.devices.take_unreadable(["deviceclasses.resource.k8s.io"])
    cluster.pod("train", ["a", "b"])
    cluster.write("a", "gpu-0", pod="train")
    cluster.write("b", "gpu-1", pod="train")
    assert cluster.counted() == {"unknown": 1}


def test_claims_found_allocated_are_not_compared(cluster: Allocating) -> None:
    cluster.setting.pipeline.synced = False
    cluster.pod("train", ["a"])
    cluster.write("a", "gpu-2", pod="train")
    cluster.setting.pipeline.synced = True
    cluster.write("a", "gpu-2", pod="train")
    assert cluster.later(100) == {}
