"""All ResourceSlices and ResourceClaims of a cluster, asked node by node; it changes object by object."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from numazones.dra.amounts import NodeDevices, node_devices
from numazones.dra.claims import DeviceClaim
from numazones.dra.devices import Pool, Slice, pools_of
from numazones.errors import About, ObjectFault

_PoolKey = tuple[str, str]


class Inventory:
    """The cluster's devices, and who has them."""

    def __init__(
        self,
        slices: Iterable[Slice] = (),
        claims: Iterable[DeviceClaim] = (),
        *,
        tell: Callable[[ObjectFault], object] = lambda _fault: None,
    ) -> None:
        """``tell`` is called with what is raised about one of them, which is left out."""
        self._tell = tell
        self._slices: dict[_PoolKey, dict[str, Slice]] = {}
        self._pools: dict[str, set[_PoolKey]] = {}
        """Node → pools that have devices there."""
        self._claims: dict[_PoolKey, dict[str, DeviceClaim]] = {}
        """Pool → claims that have something of it, by name."""
        self._known: dict[str, NodeDevices] = {}
        for one in slices:
            self.take_slice(None, one)
        for claim in claims:
            self.take_claim(None, claim)

    def of(self, node: str) -> NodeDevices:
        """Return the devices of a node, and who has them."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._devices_of(node)
        return known

    def _devices_of(self, node: str) -> NodeDevices:
        keys = sorted(self._pools.get(node, ()))
        named = {name: claim for key in keys for name, claim in self._claims.get(key, {}).items()}
        claims = [claim for _, claim in sorted(named.items())]
        slices = [list(self._slices[key].values()) for key in keys]
        try:
            return node_devices(node, pools_of(chain.from_iterable(slices)), claims)
        except Exception:  # noqa: BLE001 - found out next about which
            return self._sound_devices_of(node, slices, claims)

    def _sound_devices_of(
        self, node: str, slices: Iterable[Sequence[Slice]], claims: Iterable[DeviceClaim]
    ) -> NodeDevices:
        """Return the devices of a node without pools, and claims, about which something raises.

        What is left of the devices of such a claim is not known, so all drivers there count as incomplete.
        """
        drivers = {of_pool[0].driver for of_pool in slices}
        incomplete: set[str] = set()
        sound: list[DeviceClaim] = []
        for claim in claims:
            if self._is_sound(claim, partial(node_devices, node, (), (claim,))):
                sound.append(claim)
            else:
                incomplete = drivers
        pools: list[Pool] = []
        for of_pool in slices:
            if self._is_sound(of_pool[0], partial(_devices_of_pool, node, of_pool, sound)):
                pools += pools_of(of_pool)
            else:
                incomplete |= {of_pool[0].driver}
        found = node_devices(node, pools, sound)
        return replace(found, incomplete=found.incomplete | incomplete)

    def _is_sound(self, one: Slice | DeviceClaim, work: Callable[[], object]) -> bool:
        """Return whether some work about an object raises nothing."""
        try:
            with About(one):
                work()
        except ObjectFault as fault:
            self._tell(fault)
            return False
        return True

    def take_slice(self, old: Slice | None, new: Slice | None) -> set[str]:
        """Take in a slice as it was and as it is, None: it is not there; return the nodes concerned."""
        pools = {(one.driver, one.pool) for one in (old, new) if one is not None}
        nodes = self._nodes_of(pools)
        if old is not None:
            self._drop(old)
        if new is not None:
            self._slices.setdefault((new.driver, new.pool), {})[new.name] = new
        for key in pools:
            for node in _nodes(self._slices.get(key, {}).values()):
                self._pools.setdefault(node, set()).add(key)
        return self._forget(nodes | self._nodes_of(pools))

    def take_claim(self, old: DeviceClaim | None, new: DeviceClaim | None) -> set[str]:
        """Take in a claim as it was and as it is, None: it is not there; return the nodes concerned."""
        if old is not None and new is not None and old.allocations == new.allocations:
            return set()
        before, after = _pools_of(old), _pools_of(new)
        if old is not None:
            for key in before:
                known = self._claims.get(key, {})
                known.pop(old.full_name, None)
                if not known:
                    self._claims.pop(key, None)
        if new is not None:
            for key in after:
                self._claims.setdefault(key, {})[new.full_name] = new
        return self._forget(self._nodes_of(before | after))

    def _drop(self, one: Slice) -> None:
        key = (one.driver, one.pool)
        known = self._slices.get(key, {})
        for node in _nodes(known.values()):
            self._pools[node].discard(key)
            if not self._pools[node]:
                del self._pools[node]
        known.pop(one.name, None)
        if not known:
            self._slices.pop(key, None)

    def _nodes_of(self, pools: Iterable[_PoolKey]) -> set[str]:
        return {node for key in pools for node in _nodes(self._slices.get(key, {}).values())}

    def _forget(self, nodes: set[str]) -> set[str]:
        for node in nodes:
            self._known.pop(node, None)
        return nodes


def _nodes(slices: Iterable[Slice]) -> set[str]:
    return {device.node for one in slices for device in one.devices if device.node}


def _pools_of(claim: DeviceClaim | None) -> set[_PoolKey]:
    return set() if claim is None else {one.device[:2] for one in claim.allocations}


def _devices_of_pool(node: str, slices: Sequence[Slice], claims: Iterable[DeviceClaim]) -> NodeDevices:
    return node_devices(node, pools_of(slices), claims)
