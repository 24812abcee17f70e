"""Prints the bill of materials of an image (CycloneDX 1.6): Python and Debian packages, with their hashes.

    python tools/images/sbom.py exporter CONTEXT arm64

CONTEXT is the folder that the image is built from: base.tar, and in exporter/wheels what is installed.
Equal contexts give equal bills.
"""

import hashlib
import os
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_LOCKS = {"amd64": "base.lock", "arm64": "base.arm64.lock"}
_STATUS = "./var/lib/dpkg/status.d/"
_SITE = "/usr/local/lib/python3.11/dist-packages"
"""Where Debian's Python installs."""


def python_packages(wheels: Path) -> Iterator[Component]:
    """What is installed from wheels, with the bills (PEP 770) of what their makers compiled into them."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            (name,) = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
            metadata = HeaderParser().parsestr(content.read(name).decode())
            bills = [
                ExternalReference(
                    type=ExternalReferenceType.BOM,
                    url=XsUri(f"file://{_SITE}/{name}"),
                    hashes=[_sha256(hashlib.sha256(content.read(name)).hexdigest())],
                )
                for name in sorted(content.namelist())
                if ".dist-info/sboms/" in name and not name.endswith("/")
            ]
        licence = metadata["License-Expression"] or metadata["License"]
        short = licence and "\n" not in licence  # some put the whole text there
        purl = PackageURL("pypi", name=metadata["Name"].lower(), version=metadata["Version"])
        yield Component(
            name=metadata["Name"],
            version=metadata["Version"],
            purl=purl,
            bom_ref=str(purl),
            licenses=[LicenseFactory().make_from_string(licence)] if short else (),
            hashes=[_sha256(hashlib.sha256(wheel.read_bytes()).hexdigest())],
            external_references=bills,
        )


def debian_packages(base: Path, architecture: str) -> Iterator[Component]:
    """What the base is made of: of the locked packages those that are left in it."""
    with tarfile.open(base) as content:
        left = {name.removeprefix(_STATUS) for name in content.getnames() if name.startswith(_STATUS)}
    for line in Path(__file__).with_name(_LOCKS[architecture]).read_text().splitlines():
        if not line.startswith("#"):
            name, version, digest = line.split()
            if name in left:
                origin = {"arch": architecture, "distro": "bookworm"}
                purl = PackageURL("deb", "debian", name, version, origin)
                yield Component(
                    name=name, version=version, purl=purl, bom_ref=str(purl), hashes=[_sha256(digest)]
                )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def bill(program: str, context: Path, architecture: str, version: str, moment: datetime) -> str:
    """The bill of an image, as JSON."""
    components = [
        *python_packages(context / program / "wheels"),
        *debian_packages(context / "base.tar", architecture),
    ]
    image = Component(
        name=f"numazones-{program}", version=version, type=ComponentType.CONTAINER, bom_ref="image"
    )
    refs = " ".join(str(component.bom_ref.value) for component in components)
    bom = Bom(
        components=components,
        metadata=BomMetaData(component=image, timestamp=moment),
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{program} {refs}"),
    )
    bom.register_dependency(image, components)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


if __name__ == "__main__":
    print(
        bill(
            sys.argv[1],
            Path(sys.argv[2]),
            sys.argv[3],
            os.environ["VERSION"],
            datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC),
        ),
        end="",
    )
