"""Prints the bill of materials of an image (CycloneDX 1.6): Python and Debian packages, with their hashes.

    python images/sbom.py exporter CONTEXT arm64

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
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_LOCKS = {"amd64": "base.lock", "arm64": "base.arm64.lock"}
_STATUS = "./var/lib/dpkg/status.d/"


def python_packages(wheels: Path) -> Iterator[Component]:
    """What is installed from wheels."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            (name,) = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
            metadata = HeaderParser().parsestr(content.read(name).decode())
        licence = metadata["License-Expression"] or metadata["License"]
        short = licence and "\n" not in licence  # some put the whole text there
        purl = PackageURL("pypi", name=metadata["Name"].lower(), version=metadata["Version"])
        yield Component(
            name=metadata["Name"],
            version=metadata["Version"],
            purl=purl,
            bom_ref=str(purl),
            licenses=[LicenseFactory().make_from_string(licence)] if short else (),
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())
            ],
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
                hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
                yield Component(name=name, version=version, purl=purl, bom_ref=str(purl), hashes=hashes)


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
