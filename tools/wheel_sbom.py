"""Prints the bill of materials of a wheel (CycloneDX 1.6): what its extras need, as requirements.txt pins it.

    python -m tools.wheel_sbom dist/numazones-X.Y.Z-py3-none-any.whl

It lists what any supported Python needs on any supported system: equal wheels and locks give equal bills, by
whichever Python they are written.
"""

import hashlib
import os
import sys
import uuid
from datetime import UTC, datetime
from email.parser import HeaderParser
from importlib.metadata import requires
from pathlib import Path
from zipfile import ZipFile

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.locked import locked, needed, project
from tools.targets import PYTHONS, TARGETS


def bill(wheel: Path, moment: datetime) -> str:
    """The bill of a wheel, as JSON."""
    with ZipFile(wheel) as content:
        (name,) = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(content.read(name).decode())
    extras = [extra for extra in project()["optional-dependencies"] if extra != "dev"]
    wanted = [needed(extras, environment=target.markers(python)) for target in TARGETS for python in PYTHONS]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    library = _component(metadata["Name"], metadata["Version"], ComponentType.LIBRARY, digest)
    lines = locked(set().union(*wanted)).splitlines()
    pins = [line.split()[0].split("==") for line in lines if line[0] != " "]
    packages = {canonicalize_name(name): _component(name, version) for name, version in pins}
    bom = Bom(
        components=packages.values(),
        metadata=BomMetaData(component=library, timestamp=moment),
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, digest),
    )
    bom.register_dependency(library, packages.values())
    for name, package in packages.items():
        others = {canonicalize_name(Requirement(text).name) for text in requires(name) or ()}
        bom.register_dependency(package, [packages[other] for other in sorted(others & packages.keys())])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _component(
    name: str, version: str, kind: ComponentType = ComponentType.LIBRARY, digest: str = ""
) -> Component:
    purl = PackageURL("pypi", name=name.lower(), version=version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
    return Component(name=name, version=version, type=kind, purl=purl, bom_ref=str(purl), hashes=hashes)


if __name__ == "__main__":
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", "1767225600"))
    print(bill(Path(sys.argv[1]), datetime.fromtimestamp(stamp, UTC)), end="")
