"""Sources that the exporter reads over the network: Node, pods, the running kubelet's configuration.

Two ways lead to the configuration. The kubelet's own /configz, asked at the node's address, needs ``get``
on ``nodes/configz`` (KEP-2862, kubelet 1.33; the kubelet asks the API server whether the caller may). The
API server's node proxy needs ``get`` on ``nodes/proxy``, which also opens logs and exec of every pod on the
node, because the API server authorises the proxy as a whole.
"""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from numazones.api.workload_partitioning import is_partitioned
from numazones.apimachinery.documents import CONFIGURATION, UnreadableDocument, read_json
from numazones_client import NO_RETRY, Client, Forbidden, NotFound, load
from numazones_client.config import SERVICE_ACCOUNT
from numazones_client.resources import NODES, PODS
from numazones_exporter.file_opener import ReadFile, read_file
from numazones_exporter.observation import NOT_FOUND, NodeObject, NodePod
from numazones_exporter.options import Options
from numazones_exporter.sources.kubelet_config import KubeletConfigReader
from numazones_exporter.sources.node_pods import pods_of
from numazones_exporter.sources.paths import kubelet_certificate
from numazones_node.problems import SourceError
from numazones_program.addresses import parse_address

KUBELET_PORT = 10250
_OK = 200
_UNAUTHORIZED = 401
_FORBIDDEN = 403


class LazyClient:
    """Opens the client when it is first needed: without API server, the sources fail one by one."""

    def __init__(
        self, kubeconfig: Path | None = None, client: Client | None = None, *, server: str = ""
    ) -> None:
        """``kubeconfig`` and ``server`` as in the options; a given client, which its giver closes, wins."""
        self._kubeconfig = kubeconfig
        self._server = server
        self._given = client
        self._own: Client | None = None
        self._opening = asyncio.Lock()

    async def get(self) -> Client:
        """Return the client; raises ``numazones_client.ConfigError``."""
        if self._given is not None:
            return self._given
        async with self._opening:
            if self._own is None:
                config = await load(self._kubeconfig, server=self._server)
                # The next cycle is the retry; waiting here would only make the source look as if it hung.
                self._own = Client(config, user_agent="numazones-exporter", retry=NO_RETRY)
        return self._own

    async def token(self) -> str:
        """The token for the API server, empty for none; raises ``numazones_client.ConfigError``."""
        return await (await self.get()).config.credentials.token()

    async def close(self) -> None:
        """Close the connections of a client that was opened here."""
        if self._own is not None:
            await self._own.close()


async def read_node(client: LazyClient, name: str) -> NodeObject:
    """Return the Node's uid, its kubelet's version, and whether its CPUs are partitioned.

    Raises:
        SourceError: there is no such Node.
        numazones_client.APIError: the API server cannot be asked.
    """
    try:
        node = await (await client.get()).get(NODES, name)
    except NotFound as error:
        raise SourceError(
            NOT_FOUND, f"{error.request}: {error.message}; check --node-name against kubectl get nodes"
        ) from error
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return NodeObject(node["metadata"]["uid"], info.get("kubeletVersion") or "", is_partitioned(node))


class APIPodsReader:
    """Asks the API server for the pods bound to the node."""

    def __init__(self, client: LazyClient, node_name: str) -> None:
        """``client`` is opened when it is first needed."""
        self._client = client
        self._node_name = node_name

    async def read(self) -> tuple[NodePod, ...]:
        """List the pods once; raises ``numazones_client.APIError``."""
        client = await self._client.get()
        items = await client.list(PODS, field_selector=f"spec.nodeName={self._node_name}")
        return pods_of(items, self._node_name)


class APIServerConfigReader:
    """Asks the kubelet through the API server's node proxy."""

    def __init__(self, client: LazyClient, node_name: str) -> None:
        """``client`` is opened when it is first needed."""
        self._client = client
        self._path = f"/api/v1/nodes/{quote(node_name, safe='')}/proxy/configz"

    async def read(self) -> Mapping[str, Any]:
        """Ask once.

        Raises:
            SourceError: not allowed, or the answer is not a configuration.
            numazones_client.APIError: the API server cannot be asked.
        """
        client = await self._client.get()
        try:
            return _json_object(await client.get_raw(self._path), self._path)
        except Forbidden as error:
            raise SourceError(
                "Forbidden",
                f"{self._path}: {error}; allow get on nodes/proxy, or set --kubelet-address, which "
                "needs only get on nodes/configz",
            ) from error


class KubeletConfigzReader:
    """Asks the kubelet itself, over TLS, with the exporter's own token."""

    def __init__(
        self,
        address: str,
        *,
        node_name: str,
        client: LazyClient,
        trust: Mapping[Path, ReadFile],
    ) -> None:
        """``trust``: certificate files, and what reads each; those that exist are trusted.

        ``client`` lends its token.
        """
        host, port = parse_address(address, default_port=KUBELET_PORT)
        self._url = f"https://{f'[{host}]' if ':' in host else host}:{port}/configz"
        self._node_name = node_name
        self._client = client
        self._trust = trust

    async def read(self) -> Mapping[str, Any]:
        """Ask once, on a connection of its own: this happens about once a minute.

        Raises:
            SourceError: the kubelet cannot be reached or trusted, or does not allow it.
        """
        token = await self._client.token()
        connector = aiohttp.TCPConnector(ssl=self._ssl_context(), force_close=True)
        try:
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(
                    self._url,
                    headers={"Authorization": f"Bearer {token}"} if token else {},
                    server_hostname=self._node_name,
                    allow_redirects=False,
                ) as response,
            ):
                return self._configuration(response.status, await response.read())
        except aiohttp.ClientConnectorCertificateError as error:
            raise SourceError(
                "UntrustedCertificate",
                f"{self._url}: the kubelet's certificate is not trusted: {error.certificate_error}; "
                "pass its CA with --kubelet-certificate-authority",
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceError("Unreachable", f"{self._url}: {error}; is this the node's address?") from error

    def _configuration(self, status: int, body: bytes) -> Mapping[str, Any]:
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise SourceError(
                "Forbidden",
                f"{self._url}: the kubelet returned status {status}; allow get on nodes/configz (kubelet "
                "1.33 and newer) or nodes/proxy, and enable webhook authentication in the kubelet",
            )
        if status != _OK:
            raise SourceError("Unreachable", f"{self._url}: the kubelet returned status {status}")
        return _json_object(body, self._url)

    def _ssl_context(self) -> ssl.SSLContext:
        """Trust the given certificates and no public authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for path, read in self._trust.items():
            try:
                context.load_verify_locations(cadata=read(path).decode("ascii", "replace"))
            except FileNotFoundError:
                continue
            except (OSError, ssl.SSLError) as error:
                raise SourceError(
                    "UntrustedCertificate", f"{path} contains no certificates: {error}"
                ) from error
        if not context.cert_store_stats()["x509"]:
            raise SourceError(
                "UntrustedCertificate",
                f"{self._url}: the kubelet's certificate cannot be verified, because there is no CA "
                f"certificate; missing: {', '.join(map(str, self._trust))}; pass its CA with "
                "--kubelet-certificate-authority",
            )
        return context


def configz_reader(options: Options, client: LazyClient, read: ReadFile = read_file) -> KubeletConfigReader:
    """Choose the way to the running kubelet's configuration; ``read`` reads the kubelet's certificate."""
    if not options.kubelet_address:
        return APIServerConfigReader(client, options.node_name)
    trust = {kubelet_certificate(options): read}
    if options.kubelet_certificate_authority is None:
        # Where the kubelet made no certificate for itself, the cluster's authority has signed one.
        trust[SERVICE_ACCOUNT / "ca.crt"] = read_file
    return KubeletConfigzReader(
        options.kubelet_address,
        node_name=options.node_name,
        client=client,
        trust=trust,
    )


def _json_object(body: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = read_json(body, CONFIGURATION)
    except UnreadableDocument as error:
        raise SourceError("InvalidConfiguration", f"{where}: the response is not JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise SourceError("InvalidConfiguration", f"{where}: the response is not a JSON object")
    return document
