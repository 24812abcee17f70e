"""Prints the bill of materials (CycloneDX 1.6) of a wheel or of an image; equal inputs give equal bills.

    python -m tools.sbom dist/numazones_lab-X.Y.Z-py3-none-any.whl
    python -m tools.sbom exporter CONTEXT arm64

A wheel's bill lists what its extras need, as requirements.txt pins it, on any supported Python and system.
An image's lists Python and Debian packages, with their hashes: CONTEXT is the folder that the image is built
from, with base.tar, and in exporter/wheels what is installed.
"""

import hashlib
import os
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.locked import extras_of, locked, needed, siblings
from tools.targets import PYTHONS, TARGETS

_LOCKS = {"amd64": "base.lock", "arm64": "base.arm64.lock"}
_STATUS = "./var/lib/dpkg/status.d/"
_SITE = "/usr/local/lib/python3.11/dist-packages"
"""Where Debian's Python installs."""
_MOMENT = 1767225600


def of_wheel(wheel: Path) -> Bom:
    """The bill of a wheel, with the project's other distributions that it needs."""
    with zipfile.ZipFile(wheel) as content:
        metadata = _metadata(content)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    library = _python(metadata["Name"], metadata["Version"], hashes=[_sha256(digest)])
    extras = [extra for extra in extras_of(metadata["Name"]) if extra != "dev"]
    wanted = [needed(extras, environment=target.markers(python)) for target in TARGETS for python in PYTHONS]
    lines = locked(set().union(*wanted)).splitlines()
    pins = [line.split()[0].split("==") for line in lines if line[0] != " "]
    pins += [[name, metadata["Version"]] for name in sorted(siblings(metadata["Name"]))]
    packages = {canonicalize_name(name): _python(name, version) for name, version in pins}
    bom = _bom(library, list(packages.values()), digest)
    for name, package in packages.items():
        required = {canonicalize_name(Requirement(text).name) for text in requires(name) or ()}
        bom.register_dependency(package, [packages[other] for other in sorted(required & packages.keys())])
    return bom


def of_image(program: str, context: Path, architecture: str) -> Bom:
    """The bill of an image."""
    components = [
        *map(_installed, sorted((context / program / "wheels").glob("*.whl"))),
        *_debian_packages(context / "base.tar", architecture),
    ]
    image = Component(
        name=f"numazones-{program}",
        version=os.environ["VERSION"],
        type=ComponentType.CONTAINER,
        bom_ref="image",
    )
    refs = " ".join(str(component.bom_ref.value) for component in components)
    return _bom(image, components, f"{program} {refs}")


def _bom(subject: Component, components: Sequence[Component], identity: str) -> Bom:
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", _MOMENT)), UTC)
    bom = Bom(
        components=components,
        metadata=BomMetaData(component=subject, timestamp=moment),
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, identity),
    )
    bom.register_dependency(subject, components)
    return bom


def _installed(wheel: Path) -> Component:
    """Return the contents of a wheel, with the SBOMs (PEP 770) of what its makers compiled into it."""
    with zipfile.ZipFile(wheel) as content:
        metadata = _metadata(content)
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
    return _python(
        metadata["Name"],
        metadata["Version"],
        licenses=[LicenseFactory().make_from_string(licence)] if short else (),
        hashes=[_sha256(hashlib.sha256(wheel.read_bytes()).hexdigest())],
        external_references=bills,
    )


def _debian_packages(base: Path, architecture: str) -> Iterator[Component]:
    """Yield the packages of the base: of the locked Debian packages those that are left in it."""
    with tarfile.open(base) as content:
        left = {name.removeprefix(_STATUS) for name in content.getnames() if name.startswith(_STATUS)}
    lock = Path(__file__).with_name("images") / _LOCKS[architecture]
    for line in lock.read_text().splitlines():
        if not line.startswith("#"):
            name, version, digest = line.split()
            if name in left:
                origin = {"arch": architecture, "distro": "bookworm"}
                purl = PackageURL("deb", "debian", name, version, origin)
                yield Component(
                    name=name, version=version, purl=purl, bom_ref=str(purl), hashes=[_sha256(digest)]
                )


def _metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return HeaderParser().parsestr(wheel.read(name).decode())


def _python(name: str, version: str, **further: Any) -> Component:
    purl = PackageURL("pypi", name=name.lower(), version=version)
    return Component(name=name, version=version, purl=purl, bom_ref=str(purl), **further)


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    bill = of_image(first, Path(others[0]), others[1]) if others else of_wheel(Path(first))
    print(JsonV1Dot6(bill).output_as_string(indent=1))
