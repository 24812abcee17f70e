"""Keeps the model's wrong predictions, to be replayed (``numazones.whatif.wrong_prediction``).

Misses are few, and each is worth a bug report, so they are kept in a ConfigMap beside the operator, the
latest ones up to a number and a size. The manifests create it: the operator may
change this one, and no other.
"""

import asyncio
import base64
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import accumulate

from numazones.apimachinery import timestamp
from numazones.placement import ADMITTED
from numazones.whatif import wrong_prediction
from numazones.whatif.wrong_prediction import Answer, WrongPrediction
from numazones_client import APIError, Client, Forbidden, NotFound
from numazones_client.resources import CONFIG_MAPS
from numazones_operator.faults import ObjectFaults, of_pod
from numazones_operator.verification.causes import Accuracy
from numazones_operator.verification.verifier import Verification

NAME = "numazones-operator-misses"

_MOST = 20
"""Misses that are kept."""
_MAX_BYTES = 512 * 1024
"""Of all of them, as the API server stores them; an object may have about 1 MiB."""

_log = logging.getLogger(__name__)


@dataclass
class Misses:
    """Takes wrong predictions that nothing explains, and writes them one by one."""

    client: Client
    _: KW_ONLY
    namespace: str
    wall: Callable[[], float]
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    _waiting: deque[WrongPrediction] = field(init=False, default_factory=lambda: deque(maxlen=_MOST))
    _any: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def take(self, verification: Verification) -> None:
        """Take a prediction that was judged; only those that the model got wrong are kept."""
        expectation = verification.expectation
        if verification.accuracy is not Accuracy.MODEL or expectation.found is None:
            return
        self._waiting.append(
            WrongPrediction(
                pod=expectation.pod.info,
                node=expectation.found,
                predicted=Answer(expectation.reason or ADMITTED, expectation.message),
                actual=Answer(verification.actual, verification.message),
                time=timestamp.format(datetime.fromtimestamp(self.wall(), UTC)),
                version=version("numazones"),
            )
        )
        self._any.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._any.wait()
            self._any.clear()
            await self.write()

    async def write(self) -> None:
        """Write those that wait."""
        while self._waiting:
            one = self._waiting.popleft()
            with self.faults.of(of_pod(one.pod.pod)):
                await self._keep(one)

    async def _keep(self, one: WrongPrediction) -> None:
        data = base64.b64encode(wrong_prediction.write(one)).decode()
        key = f"{one.time.replace(':', '')}-{one.pod.pod.namespace}.{one.pod.pod.name}"[:245] + ".json.gz"
        if len(data) > _MAX_BYTES:
            _log.warning(
                "a wrong prediction was not saved for replay: %s is too large (%d bytes)", key, len(data)
            )
            return
        try:
            body = await self.client.get(CONFIG_MAPS, NAME, namespace=self.namespace)
            kept = {**(body.get("binaryData") or {}), key: data}
            changes = {key: data, **dict.fromkeys(_superfluous(kept))}
            await self.client.patch(CONFIG_MAPS, NAME, {"binaryData": changes}, namespace=self.namespace)
        except (NotFound, Forbidden) as error:
            cure = "apply manifests/operator, which includes this ConfigMap and the permission to change it"
            _log.warning("a wrong prediction was not saved for replay: %s; %s", error, cure)
        except APIError as error:
            _log.warning("a wrong prediction was not saved for replay: %s", error)
        else:
            _log.info("saved a wrong prediction as %s in ConfigMap %s/%s", key, self.namespace, NAME)


def _superfluous(kept: Mapping[str, str]) -> list[str]:
    """Return the keys to drop, so that the latest are kept; they begin with the time."""
    latest = sorted(kept, reverse=True)
    sizes = accumulate(len(kept[key]) for key in latest)
    counted = enumerate(zip(latest, sizes, strict=True))
    return [key for number, (key, size) in counted if number >= _MOST or size > _MAX_BYTES]
