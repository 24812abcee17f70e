"""Runs containers of the project's manifests within their constraints, without a container engine.

What a kubelet and a runtime would do is read from the pod as kustomize renders it: user, variables, flags,
mounts. Pods have a network namespace of their own, in which the test serves what a pod finds there: the API
server behind TLS, and the kubelet. The file system is that of an image, or, where there is none, this Python
and the installed project, read-only, with nothing else of this machine: no /etc/passwd, no HOME, no /tmp.
"""

import asyncio
import ctypes
import gzip
import http.client
import io
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import sysconfig
import tarfile
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

ENTER = Path(__file__).with_name("enter.py")
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache")
DEVICES = ("null", "zero", "full", "random", "urandom")

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FileSystem:
    """Files that a container sees, apart from the pod's mounts."""

    root: Path
    binds: tuple[tuple[str, str, bool], ...]
    """(source, target, writable)"""
    environment: dict[str, str]
    program: Callable[[str], list[str]]
    """Name of a program → its command, where a container names none."""
    programs: Path
    """Where the project's programs are, which a container may name as its command."""


def of_this_python(root: Path) -> FileSystem:
    """The installed project and what it needs, as read-only mounts in an otherwise empty root."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)}
    sources = {Path(line) for line in _paths_of_editable_project()}
    system = {Path(name) for name in SYSTEM if Path(name).exists()}
    wanted = sorted(
        {path.resolve() for path in prefixes | sources} | system, key=lambda path: len(path.parts)
    )
    binds: list[tuple[str, str, bool]] = []
    for path in wanted:
        if not any(path.is_relative_to(other) for other, _, _ in binds if other != "/lib"):
            _mount_point(root, path)
            binds.append((str(path), str(path), False))
    programs = Path(sys.prefix) / "bin"
    environment = {"PATH": f"{programs}:/usr/bin"}
    return FileSystem(root, tuple(binds), environment, lambda name: [str(programs / name)], programs)


def _paths_of_editable_project() -> Iterable[str]:
    for file in Path(sysconfig.get_path("purelib")).glob("*.pth"):
        yield from (line for line in file.read_text().splitlines() if line.startswith("/"))


def of_image(archive: Path, root: Path) -> FileSystem:
    """An image's files, unpacked from an OCI archive, and its entry point and variables."""
    with tarfile.open(archive) as content:

        def blob(digest: str) -> bytes:
            part = content.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert part is not None
            return part.read()

        index = json.loads((content.extractfile("index.json") or io.BytesIO()).read())
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        config = json.loads(blob(manifest["config"]["digest"]))["config"]
        for layer in manifest["layers"]:
            data = blob(layer["digest"])
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            with tarfile.open(fileobj=io.BytesIO(data)) as files:
                files.extractall(root, filter="tar")
    environment = dict(variable.partition("=")[::2] for variable in config["Env"])
    entrypoint = list(config["Entrypoint"])
    return FileSystem(root, (), environment, lambda _name: entrypoint, Path("/usr/local/bin"))


def _mount_point(root: Path, path: Path) -> Path:
    point = root / str(path).lstrip("/")
    if path.is_dir():
        point.mkdir(parents=True, exist_ok=True)
    else:
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()
    return point


class Network:
    """A network namespace with nothing but loopback; a thread lives in it and does there what it is told."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=_leave_network)

    async def do(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def listen(self, port: int) -> socket.socket:
        return await self.do(lambda: socket.create_server(("127.0.0.1", port)))

    async def get(self, port: int, path: str) -> tuple[int, str]:
        """Ask a server in the namespace; status 0 where nobody listens."""

        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except OSError:
                return 0, ""
            finally:
                connection.close()

        return await self.do(ask)

    def close(self) -> None:
        self._thread.shutdown()


def _leave_network() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "a network namespace of its own")
    import fcntl  # noqa: PLC0415

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh", b"lo", 0)
        flags = struct.unpack("16sh", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP))


@dataclass
class Pod:
    """A pod of a rendered manifest, with what the API server and the kubelet would add to it."""

    template: dict[str, Any]
    name: str
    namespace: str
    node: str
    folder: Path
    """Of the test: token and mounts."""
    host: dict[str, Path]
    """hostPath → the folder that stands for it."""
    proc: Path
    """With files of the node, such as meminfo, that a container finds in /proc."""

    @property
    def log(self) -> Path:
        """Return the file with the container's output."""
        return self.folder / "log"

    @property
    def container(self) -> dict[str, Any]:
        (only,) = self.template["spec"]["containers"]
        found: dict[str, Any] = only
        return found

    def environment(self) -> dict[str, str]:
        """The container's variables, and those by which a pod finds the API server."""
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "spec.nodeName": self.node,
            "status.hostIP": "127.0.0.1",
        }
        own = {
            variable["name"]: variable["value"]
            if "value" in variable
            else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in self.container.get("env", ())
        }
        service = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        return {"HOSTNAME": self.name, **service, **own}

    def arguments(self) -> list[str]:
        """The flags, with $(NAME) replaced as the kubelet does."""
        values = self.environment()
        return [
            re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], argument)
            for argument in self.container["args"]
        ]

    def binds(self) -> list[tuple[str, str, bool]]:
        """The container's mounts, and the service account's."""
        volumes = {
            volume["name"]: self._volume(volume) for volume in self.template["spec"].get("volumes", ())
        }
        own = [
            (str(volumes[mount["name"]]), mount["mountPath"], not mount.get("readOnly", False))
            for mount in self.container.get("volumeMounts", ())
        ]
        machine = [(str(file), f"/proc/{file.name}", False) for file in self.proc.iterdir()]
        return [*machine, *own, (str(self.folder / "serviceaccount"), SERVICE_ACCOUNT, False)]

    def _volume(self, volume: Mapping[str, Any]) -> Path:
        if "hostPath" in volume:
            return self.host[volume["hostPath"]["path"]]
        assert volume == {"name": volume["name"], "emptyDir": {}}
        empty = self.folder / str(volume["name"])
        empty.mkdir(exist_ok=True)
        return empty

    def spec(self, files: FileSystem, program: str) -> dict[str, Any]:
        """Return the arguments of ``enter.py``.

        Raises:
            AssertionError: the manifest asks for what is not done here; a test must not pass over it.
        """
        context = {**self.template["spec"]["securityContext"], **self.container["securityContext"]}
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        name, *further = self.container.get("command", [""])
        command = [str(files.programs / name), *further] if name else files.program(program)
        return confined(
            files,
            [*command, *self.arguments()],
            user=context["runAsUser"],
            group=context["runAsGroup"],
            binds=self.binds(),
            environment=self.environment(),
        )


def confined(
    files: FileSystem,
    command: list[str],
    *,
    user: int,
    group: int,
    binds: Iterable[tuple[str, str, bool]],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return the arguments of ``enter.py``, with the mounts of every container; create the mount points."""
    every = [*files.binds, *((f"/dev/{name}", f"/dev/{name}", True) for name in DEVICES)]
    every += [("/proc", "/proc", True), *binds]
    # A mount hides what was mounted in its folder before it: a checkout in /tmp comes after /tmp.
    every.sort(key=lambda mount: len(Path(mount[1]).parts))
    for number, (source, target, _) in enumerate(every):
        point = _beneath(files.root, every[:number], Path(target))
        if not point.exists():
            point.parent.mkdir(parents=True, exist_ok=True)
            point.mkdir() if Path(source).is_dir() else point.touch()
    return {
        "root": str(files.root),
        "binds": every,
        "user": user,
        "group": group,
        "environment": {**files.environment, **environment},
        "command": command,
    }


def _beneath(root: Path, mounts: Iterable[tuple[str, str, bool]], target: Path) -> Path:
    """Return the path on this machine of a container's path, given some of its mounts."""
    folder, place = "/", root
    for source, mounted, _ in mounts:
        if target.is_relative_to(mounted):
            folder, place = mounted, Path(source)
    return place / target.relative_to(folder)


async def start(spec: Mapping[str, Any], network: Network, output: Path) -> subprocess.Popen[bytes]:
    """Start a container; what it prints goes to a file."""
    told = output.with_suffix(".json")
    told.write_text(json.dumps(spec))
    command = [sys.executable, "-I", str(ENTER), str(told)]
    with output.open("wb") as log:
        return await network.do(
            lambda: subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={})
        )


@asynccontextmanager
async def running(
    pod: Pod, files: FileSystem, network: Network, program: str
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a pod's container, and end it as a kubelet does, with SIGTERM."""
    process = await start(pod.spec(files, program), network, pod.log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            await asyncio.to_thread(process.wait, 60)
        finally:
            process.kill()


@asynccontextmanager
async def tls(listening: socket.socket, context: ssl.SSLContext, url: str) -> AsyncIterator[None]:
    """Serve what is at a URL of this machine behind TLS, on a socket of another network."""
    address = urlsplit(url)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(address.hostname, address.port)
        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    server = await asyncio.start_server(serve, sock=listening, ssl=context)
    try:
        yield
    finally:
        server.close()


def can_isolate() -> str:
    """Return why containers cannot run here; empty if they can."""
    if os.name != "posix" or not sys.platform.startswith("linux"):
        return "containers are a matter of Linux"
    if os.geteuid() != 0:
        return "only root can mount, change root and user"
    failed: list[str] = []

    def attempt() -> None:
        try:
            _leave_network()
        except OSError as error:
            failed.append(f"this machine forbids namespaces: {error}")

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return "".join(failed)
