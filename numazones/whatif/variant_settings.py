"""Differences between an experiment's variants: kubelet settings, and how the scheduler chooses nodes.

Written in one form, ``KEY=VALUE``: ``placement`` is the scheduler's choice, every other key a setting of
kubelets.
"""

from collections.abc import Iterable

from numazones.prediction.node_choice import NodeChoice
from numazones.whatif import settings as kubelet_settings
from numazones.whatif.settings import IneffectiveSetting, Settings

PLACEMENT = "placement"


def parse(texts: Iterable[str]) -> dict[str, str]:
    """Read ``KEY=VALUE`` texts; of a key given twice the last value counts.

    Raises:
        InvalidSetting: a text is not in this form, its key is unknown, or there is no such placement.
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        if separator and key == PLACEMENT:
            settings[key] = _choice(value)
        else:
            settings |= kubelet_settings.parse([text])
    return settings


def split(settings: Settings) -> tuple[Settings, NodeChoice | None]:
    """Return the settings of kubelets, and the scheduler's choice where it is set."""
    of_kubelets = {key: value for key, value in settings.items() if key != PLACEMENT}
    chosen = settings.get(PLACEMENT)
    return of_kubelets, None if chosen is None else _choice(chosen)


def _choice(value: str) -> NodeChoice:
    try:
        return NodeChoice(value)
    except ValueError as error:
        known = ", ".join(NodeChoice)
        raise IneffectiveSetting(
            f"{PLACEMENT}={value}: there is no such placement; there are {known}"
        ) from error
