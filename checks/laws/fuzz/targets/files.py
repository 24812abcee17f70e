"""Fuzz targets of kubectl numazones: dumps, recordings, policies, kubeconfigs."""

import asyncio
import gzip
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import click
import yaml
from click.testing import CliRunner

from checks.laws.fuzz.target import Target
from checks.laws.fuzz.targets.node import folder, json_or
from kubectl_numazones.main import commands
from kubectl_numazones.reading import recording
from kubectl_numazones.reading.tree_archive import BadArchive, members, unpack
from numazones.errors import NumazonesError
from numazones.whatif import wrong_prediction
from numazones.whatif.wrong_prediction import InvalidRecord
from numazones_client.config import ConfigError
from tests.numazones.whatif.misses import missed
from tests.places import DATA

_RECORDED = DATA / "kubectl" / "recorded"
_DUMP = DATA / "kubectl" / "dump.json"
_QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("top",),
    ("why",),
    ("who", "worker-1"),
    ("tree", "worker-1"),
    ("aligned",),
    ("doctor",),
    ("fit", "cpu=4,memory=1Gi"),
)
_LONGEST = 2000


def _ask(*arguments: object) -> None:
    """Run a command: it answers, or says in one line what is wrong."""
    found = CliRunner().invoke(commands, [str(one) for one in arguments], standalone_mode=False)
    error = found.exception
    if error is None or isinstance(error, SystemExit):
        return
    if not isinstance(error, NumazonesError | click.ClickException):
        raise error
    said = str(error)
    assert said.strip()
    assert "\n" not in said
    assert len(said) < _LONGEST
    raise error


def _dump(suffix: str, data: bytes) -> None:
    with folder() as root:
        path = root / f"dump{suffix}"
        path.write_bytes(data)
        # One question each, by what is in the file, so that the same file is always asked the same.
        _ask(*_QUESTIONS[crc32(data) % len(_QUESTIONS)], "-f", path)


def _dumps() -> list[bytes]:
    return [_DUMP.read_bytes()]


def _yaml_dumps() -> list[bytes]:
    items = json.loads(_DUMP.read_bytes())["items"]
    return [
        yaml.safe_dump({"kind": "List", "items": items}).encode(),
        yaml.safe_dump_all(items).encode(),
    ]


def _recording(data: bytes) -> None:
    """Replay a recorded node whose history and files are as the input says; its machine stays the same."""
    found = json_or(data)
    if not isinstance(found, Mapping):
        return
    with folder() as root, mock.patch.object(recording, "_machine", return_value=_machine()):
        directory = root / "recorded"
        shutil.copytree(_RECORDED, directory)
        lines = found.get("replay.jsonl")
        text = "\n".join(map(json.dumps, lines)) if isinstance(lines, list) else json.dumps(lines)
        (directory / "replay.jsonl").write_text(text)
        for name in _FILES:
            if name in found:
                content = found[name]
                kept = content if isinstance(content, str) else json.dumps(content)
                (directory / "node-1" / name).write_bytes(kept.encode(errors="surrogateescape"))
        _ask("replay", directory)


_FILES = ("device_plugins.json", "kubelet-config.yaml", "node.json", "numazones.json")


_read_machine = recording._machine


@cache
def _machine() -> Any:
    return _read_machine(_RECORDED / "node-1" / "sys.tar.gz")


def _recordings() -> list[bytes]:
    lines = [json.loads(line) for line in (_RECORDED / "replay.jsonl").read_text().splitlines()]
    files = {
        name: json.loads((_RECORDED / "node-1" / name).read_text())
        for name in _FILES
        if name.endswith("json")
    }
    config = (_RECORDED / "node-1" / "kubelet-config.yaml").read_text()
    return [json.dumps({"replay.jsonl": lines, "kubelet-config.yaml": config, **files}).encode()]


_TREE = _RECORDED / "node-1" / "sys.tar.gz"


def _tree(data: bytes) -> None:
    """Unpack an archive: nothing comes to lie outside of its folder, and no link leads there."""
    with folder() as root:
        inside = root / "inside"
        inside.mkdir()
        unpack(list(members(data)), inside)
        assert list(root.iterdir()) == [inside]
        assert all(path.resolve().is_relative_to(inside.resolve()) for path in inside.rglob("*"))


def _trees() -> list[bytes]:
    return [gzip.decompress(_TREE.read_bytes()), _TREE.read_bytes()]


def _kept_misses() -> list[bytes]:
    packed = wrong_prediction.write(missed(cpu=40))
    return [packed, gzip.decompress(packed)]


def _policy_file(data: bytes) -> None:
    with folder() as root:
        path = root / "policy.yaml"
        path.write_bytes(data)
        _ask("plan", "--policy", path, "--effort", "20", "-f", DATA / "rebalance" / "dump.json")


def _policy_files() -> list[bytes]:
    text = (DATA / "rebalance" / "policy.yaml").read_bytes()
    return [text, json.dumps(yaml.safe_load(text)).encode()]


_forbidden: list[bool] = []


def _refuse(event: str, _arguments: tuple[Any, ...]) -> None:
    if _forbidden and event in {
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "socket.connect",
    }:
        raise OSError(f"{event}: nothing is started or called while fuzzing")


sys.addaudithook(_refuse)


@contextmanager
def _harmless() -> Iterator[None]:
    """Let no program be started and no server be called: kubeconfigs name both."""
    _forbidden.append(True)
    try:
        yield
    finally:
        _forbidden.pop()


def _kubeconfig(data: bytes) -> None:
    from numazones_client import official_kubeconfig  # noqa: PLC0415 - slow

    with folder() as root:
        path = root / "config"
        path.write_bytes(data)
        loop = asyncio.new_event_loop()
        try:
            with _harmless():
                loop.run_until_complete(_connect(official_kubeconfig, path))
        finally:
            loop.close()


async def _connect(reader: Any, path: Path) -> None:
    found = await reader.read(str(path), None)
    assert isinstance(found.namespace, str)
    assert isinstance(await found.credentials.token(), str)


def _kubeconfigs() -> list[bytes]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [
            {"name": "k", "cluster": {"server": "http://localhost:1", "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    return [json.dumps(config).encode(), yaml.safe_dump(config).encode()]


_SAID = (NumazonesError, click.ClickException)
TARGETS = (
    Target("dump-json", lambda data: _dump(".json", data), _dumps, _SAID, 60),
    Target("dump-yaml", lambda data: _dump(".yaml", data), _yaml_dumps, _SAID, 60),
    Target("recording", _recording, _recordings, _SAID, 40),
    Target("tree-archive", _tree, _trees, (BadArchive,)),
    Target("kept-miss", wrong_prediction.read, _kept_misses, (InvalidRecord,), 40),
    Target("policy-file", _policy_file, _policy_files, _SAID, 40),
    Target("kubeconfig", _kubeconfig, _kubeconfigs, (ConfigError,), 100),
)
