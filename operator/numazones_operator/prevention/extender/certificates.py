"""By what the extender and its clients know each other where they don't share a pod."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from numazones_program.settings import InvalidSetting


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of the server's certificate and key, and of the CA that signs its clients' certificates."""

    certificate: Path
    key: Path
    client_ca: Path

    def context(self) -> ssl.SSLContext:
        """Return what demands a certificate of the CA from every client.

        Raises:
            InvalidSetting: a file cannot be read, or is not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            self.load_into(context)
            context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(
                f"cannot load the extender's certificates ({self.certificate}, {self.key}, "
                f"{self.client_ca}): {error}; provide PEM files with a certificate, its key and the "
                "clients' CA"
            ) from error
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Read certificate and key anew; connections made from now on use them."""
        context.load_cert_chain(self.certificate, self.key)
