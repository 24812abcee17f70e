"""Tests that images are made from the lock alone, and of the contents of those that have been built."""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import stat
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from configparser import ConfigParser
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.model import ExternalReferenceType
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from numazones.placement.models import ENTRY_POINTS
from tests.places import ROOT
from tools.archives import MOMENT
from tools.locked import DISTRIBUTIONS, extras_of, locked, needed, project

IMAGES = ROOT / "tools" / "images"
BUILT = ROOT / ".cache" / "images"
STATUS = "var/lib/dpkg/status.d/"
PROGRAMS = ("exporter", "operator", "simulator")
HASH = r"    --hash=sha256:[0-9a-f]{64}"
LOCKED = re.compile(rf"([a-z0-9-]+)==(\S+) \\\n(?:{HASH} \\\n)*{HASH}\n")


def python(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_image_installs_only_locked_packages_of_its_extra(program: str) -> None:
    text = locked(needed([program]))
    entries = list(LOCKED.finditer(text))
    assert text == "".join(entry[0] for entry in entries)
    lock = (ROOT / "requirements.txt").read_text()
    assert all(entry[0] in lock for entry in entries)
    pins = {entry[1]: entry[2] for entry in entries}
    (extra,) = [found[program] for name in DISTRIBUTIONS if program in (found := extras_of(name))]
    direct = [*project()["dependencies"], *extra]
    names = {canonicalize_name(Requirement(text).name) for text in direct}
    assert names <= pins.keys()
    assert {name: version(name) for name in pins} == pins, "the environment is that of the lock"
    assert not {"pytest", "mypy", "ruff", "pip"} & pins.keys()
    assert ("kopf" in pins) == (program == "operator")
    assert ("grpclib" in pins) == (program != "operator")


def test_the_base_is_pinned_by_hash() -> None:
    lines = (IMAGES / "base.lock").read_text().splitlines()
    assert lines[0].startswith("#")
    for line in lines[1:]:
        assert re.fullmatch(r"[a-z0-9.+-]+ [0-9A-Za-z:.+~-]+ [0-9a-f]{64}", line), line
    assert any(line.startswith("python3.11-minimal 3.11.") for line in lines)


def test_containerfile_has_a_rootless_target_for_each_program() -> None:
    text = (IMAGES / "release.Containerfile").read_text()
    stages = re.findall(r"^FROM (\w+) AS (\w+)$", text, re.MULTILINE)
    assert {name for base, name in stages if base == "image"} == set(PROGRAMS)
    assert stages[0] == ("scratch", "base")
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["65532:65532"]
    for program in PROGRAMS:
        assert f'ENTRYPOINT ["/usr/local/bin/numazones-{program}"]' in text


def test_deployed_images_have_a_pinned_base_and_no_root() -> None:
    text = (IMAGES / "Containerfile").read_text()
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert {name for base, name in stages if base == "image"} == {"exporter", "operator"}
    assert (
        re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE)[0].count(".") >= 3
    )  # a registry, and all of a version
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["65532:65532"]
    # The context has what is copied and what the wheels are made of.
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word
        for words in re.findall(r"^COPY ([^-.\n]\S* .*) \./$", text, re.MULTILINE)
        for word in words.split()
    }
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    sources = {name.partition("/")[0] for name in packages["packages"]} | {
        "models",
        "README.md",
        "LICENSE",
        "NOTICE",
    }
    assert copied | sources <= allowed


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A context with one wheel and a base of two packages, one of which was taken out again."""
    wheels = tmp_path / "exporter" / "wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / "example-1.2-py3-none-any.whl", "w") as wheel:
        metadata = "Metadata-Version: 2.4\nName: Example\nVersion: 1.2\nLicense-Expression: MIT\n"
        wheel.writestr("example-1.2.dist-info/METADATA", metadata)
        wheel.writestr("example-1.2.dist-info/sboms/example.cdx.json", "{}")
    with tarfile.open(tmp_path / "base.tar", "w") as base:
        base.addfile(tarfile.TarInfo("./var/lib/dpkg/status.d/libc6"))
    return tmp_path


def test_the_bill_names_every_package_with_its_hash(context: Path) -> None:
    stamp = {"VERSION": "9.8.7", "SOURCE_DATE_EPOCH": "1767225600"}
    bill = python("-m", "tools.sbom", "exporter", str(context), "amd64", **stamp)
    assert bill == python("-m", "tools.sbom", "exporter", str(context), "amd64", **stamp)
    read = Bom.from_json(json.loads(bill))  # type: ignore[attr-defined] # made by a decorator
    assert read.metadata.component.name == "numazones-exporter"
    assert read.metadata.component.version == "9.8.7"
    assert read.metadata.timestamp.isoformat() == "2026-01-01T00:00:00+00:00"
    found = {component.name: component for component in read.components}
    assert found.keys() == {"Example", "libc6"}
    assert str(found["Example"].purl) == "pkg:pypi/example@1.2"
    assert [licence.id for licence in found["Example"].licenses] == ["MIT"]
    (compiled,) = found["Example"].external_references
    assert compiled.type == ExternalReferenceType.BOM
    assert str(compiled.url).endswith("/dist-packages/example-1.2.dist-info/sboms/example.cdx.json")
    assert [item.content for item in compiled.hashes] == [hashlib.sha256(b"{}").hexdigest()]
    assert str(found["libc6"].purl).startswith("pkg:deb/debian/libc6@2.36")
    assert all(len(item.hashes) == 1 for item in found.values())
    other = json.loads(python("-m", "tools.sbom", "exporter", str(context), "arm64", **stamp))
    assert other["serialNumber"] != json.loads(bill)["serialNumber"]
    assert {item["purl"] for item in other["components"]} == {
        "pkg:pypi/example@1.2",
        str(found["libc6"].purl).replace("arch=amd64", "arch=arm64"),
    }


def layout(folder: Path, *, moment: int, mode: int) -> Path:
    """An image's files as buildah leaves them in a folder, at some time and with some umask."""
    blobs = {
        "sha256/1f": b"a layer",
        "sha256/c0": b'{"architecture": "amd64", "config": {}}',
    }
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": b"{}"}
    files |= {f"blobs/{name}": content for name, content in blobs.items()}
    for name in sorted(files, reverse=bool(moment % 2)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
        path.chmod(mode)
        os.utime(path, (moment, moment))
    return folder


def test_image_archive_hides_time_place_and_user_of_packing(tmp_path: Path) -> None:
    for name, moment, mode in (("one", 1_800_000_000, 0o644), ("another", 1_800_000_601, 0o600)):
        python(
            "-m",
            "tools.archives",
            str(layout(tmp_path / name, moment=moment, mode=mode)),
            str(tmp_path / f"{name}.tar"),
        )
    packed = tmp_path / "one.tar"
    assert packed.read_bytes() == (tmp_path / "another.tar").read_bytes()
    with tarfile.open(packed) as content:
        names = ["blobs/sha256/1f", "blobs/sha256/c0", "index.json", "oci-layout"]
        assert [member.name for member in content] == names
        assert {(member.mtime, member.mode, member.uid, member.uname) for member in content} == {
            (MOMENT, 0o644, 0, "")
        }
        for name in names:
            part = content.extractfile(name)
            assert part is not None
            assert part.read() == (tmp_path / "one" / name).read_bytes()


class Image:
    """An OCI archive, unpacked in memory."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as content:
            self.archived = content.getmembers()

            def blob(name: str) -> bytes:
                part = content.extractfile(name)
                assert part is not None
                return part.read()

            def at(digest: str) -> str:
                return f"blobs/{digest.replace(':', '/')}"

            (entry,) = json.loads(blob("index.json"))["manifests"]
            self.name: str = entry["annotations"]["org.opencontainers.image.ref.name"]
            manifest = json.loads(blob(at(entry["digest"])))
            described = json.loads(blob(at(manifest["config"]["digest"])))
            self.architecture: str = described["architecture"]
            self.config: Mapping[str, Any] = described["config"]
            self.compressed = sum(layer["size"] for layer in manifest["layers"])
            self.files: dict[str, tarfile.TarInfo] = {}
            self.contents: dict[str, bytes] = {}
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(at(layer["digest"]))))) as files:
                    for member in files:
                        name = member.name.removeprefix("./")
                        self.files[name] = member
                        if member.isfile() and (part := files.extractfile(member)):
                            self.contents[name] = part.read()


FOREIGN = sorted({f"{path.parent.name}/" for path in BUILT.glob("a*64/*.tar")})
"""Folders of images that were built for another machine than this."""


@pytest.fixture(scope="module", params=[folder + name for folder in ("", *FOREIGN) for name in PROGRAMS])
def image(request: pytest.FixtureRequest) -> tuple[str, Image]:
    folder, _, program = request.param.rpartition("/")
    archive = BUILT / folder / f"numazones-{program}.tar"
    if not archive.exists():
        pytest.skip("make images, which needs buildah and mmdebstrap, has not built it")
    built = Image(archive)
    assert folder in ("", built.architecture)
    return program, built


def test_image_archive_hides_its_build_time(image: tuple[str, Image]) -> None:
    _, built = image
    assert {member.mtime for member in built.archived} == {MOMENT}
    assert [member.name for member in built.archived] == sorted(member.name for member in built.archived)


def test_an_image_says_what_it_is(image: tuple[str, Image]) -> None:
    program, built = image
    labels = {
        name.removeprefix("org.opencontainers.image."): text for name, text in built.config["Labels"].items()
    }
    assert labels["title"] == f"numazones-{program}"
    assert labels["version"] == version("numazones")
    assert labels["licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}", labels["revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])
    assert labels["description"]
    assert built.config["User"] == "65532:65532"


def test_image_is_loaded_under_the_manifests_normalized_name(
    image: tuple[str, Image],
) -> None:
    program, built = image
    if program == "simulator":
        asked = f"numazones-simulator:{version('numazones')}"
    else:
        (named,) = yaml.safe_load((ROOT / "manifests" / program / "kustomization.yaml").read_text())["images"]
        asked = f"{named['name']}:{named['newTag']}"
    # A name without a registry is one of Docker Hub's library, to containerd, CRI-O and Docker.
    assert built.name == f"docker.io/library/{asked}"


def test_image_is_small_and_has_its_programs_and_no_shell(image: tuple[str, Image]) -> None:
    program, built = image
    # The simulator has the programs' packages together; what checks CEL takes 9 MiB.
    assert built.compressed < {"exporter": 35, "operator": 49, "simulator": 70}[program] << 20
    executable = {
        name
        for name, member in built.files.items()
        if member.isfile() and member.mode & stat.S_IXUSR and re.search(r"(^|/)s?bin/", name)
    }
    mine = {f"numazones-{program}"}
    if program == "simulator":
        mine = {f"numazones-{name}" for name in PROGRAMS}
    if program != "exporter":
        mine.add("kubectl-numazones")
    assert executable == {"usr/bin/python3.11", *(f"usr/local/bin/{name}" for name in mine)}
    assert not any(member.mode & (stat.S_ISUID | stat.S_ISGID) for member in built.files.values())


def needed_libraries(binary: bytes) -> set[str]:
    """Names of the shared libraries that an ELF file of 64 bits, little-endian, asks its loader for."""
    at, size, count = struct.unpack_from("<Q", binary, 32)[0], *struct.unpack_from("<HH", binary, 54)
    headers = [struct.unpack_from("<IIQQQQ", binary, at + index * size) for index in range(count)]
    loaded = [(address, offset, length) for kind, _, offset, address, _, length in headers if kind == 1]
    entries = [
        struct.unpack_from("<QQ", binary, place)
        for kind, _, offset, _, _, length in headers
        if kind == 2  # PT_DYNAMIC
        for place in range(offset, offset + length, 16)
    ]
    table = dict(entries).get(5)  # DT_STRTAB
    if table is None:
        return set()
    (names,) = (offset + table - start for start, offset, length in loaded if 0 <= table - start < length)
    return {
        binary[names + value : binary.index(b"\0", names + value)].decode()
        for tag, value in entries
        if tag == 1  # DT_NEEDED
    }


def test_image_has_every_library_of_its_binaries(image: tuple[str, Image]) -> None:
    _, built = image
    there = {name.rpartition("/")[2] for name in built.files}
    missing = {
        name: lacks
        for name, content in built.contents.items()
        if content[:4] == b"\x7fELF" and (lacks := needed_libraries(content) - there)
    }
    assert missing == {}
    assert "libc.so.6" in needed_libraries(built.contents["usr/bin/python3.11"])


def test_every_binary_in_an_image_is_for_its_machine(image: tuple[str, Image]) -> None:
    _, built = image
    # e_machine of the ELF header: EM_X86_64, EM_AARCH64.
    machine = {"amd64": 62, "arm64": 183}[built.architecture]
    binaries = {
        name: struct.unpack_from("<H", content, 18)[0]
        for name, content in built.contents.items()
        if content[:4] == b"\x7fELF"
    }
    assert "usr/bin/python3.11" in binaries
    assert any("/pydantic_core/" in name for name in binaries)
    assert {name for name, found in binaries.items() if found != machine} == set()


def test_an_image_holds_no_schemas_that_nothing_reads(image: tuple[str, Image]) -> None:
    program, built = image
    schemas = [
        name.rpartition("/")[2]
        for name in built.files
        if "/kubernetes-json-schema/" in name and name.endswith(".json")
    ]
    assert schemas == ["_definitions.json"] * (program == "simulator")


def test_image_has_the_cel_extensions_of_its_programs(image: tuple[str, Image]) -> None:
    program, built = image
    kept = {
        found[1]
        for name in built.contents
        if (found := re.search(r"/cel_expr_python/ext/(\w+)\..*so$", name))
    }
    wanted: set[str] = set()
    for name, content in built.contents.items():
        if "/numazones/apimachinery/cel/" in name and name.endswith(".py"):
            wanted.update(re.findall(r"\bext_\w+", content.decode()))
    assert kept == (wanted if program != "exporter" else set())


def test_image_has_the_entry_points_of_placement_models(image: tuple[str, Image]) -> None:
    _, built = image
    (text,) = (
        content.decode()
        for name, content in built.contents.items()
        if re.search(r"/numazones_models-[^/]*\.dist-info/entry_points\.txt$", name)
    )
    listed = ConfigParser(delimiters="=")
    listed.read_string(text)
    declared = project("numazones-models")["entry-points"][ENTRY_POINTS]
    assert dict(listed[ENTRY_POINTS]) == declared != {}
    for value in listed[ENTRY_POINTS].values():
        module = value.partition(":")[0].replace(".", "/")
        assert any(name.endswith(f"-packages/{module}.py") for name in built.contents), module


def test_an_image_has_valid_bytecode_for_every_module(image: tuple[str, Image]) -> None:
    _, built = image
    modules = [name for name in built.contents if re.match(r"usr/(local/)?lib/python3.*\.py$", name)]
    assert len(modules) > 500
    for name in modules:
        folder, _, file = name.rpartition("/")
        compiled = built.contents.get(f"{folder}/__pycache__/{file[:-3]}.cpython-311.pyc")
        assert compiled, f"{name} is not compiled"
        # PEP 552: flags 1 is "by the hash of the source, which is not checked".
        assert struct.unpack("<I", compiled[4:8]) == (1,), name


def bill_of(program: str, built: Image) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(built.contents[f"usr/share/sbom/numazones-{program}.cdx.json"])
    return found


def test_the_bill_in_an_image_is_valid(image: tuple[str, Image]) -> None:
    text = json.dumps(bill_of(*image))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_bill_in_an_image_is_of_what_is_installed(image: tuple[str, Image]) -> None:
    program, built = image
    named: set[tuple[str, str, str]] = set()
    for item in bill_of(program, built)["components"]:
        purl = PackageURL.from_string(item["purl"])
        name = canonicalize_name(item["name"])
        assert (name, item["version"]) == (canonicalize_name(purl.name), purl.version)
        named.add((purl.type, name, item["version"]))
        if purl.type == "deb":
            assert purl.qualifiers == {"arch": built.architecture, "distro": "bookworm"}
    installed = set()
    for path, content in built.contents.items():
        kind = "deb" if path.startswith(STATUS) else "pypi" if path.endswith(".dist-info/METADATA") else ""
        if kind:
            headers = HeaderParser().parsestr(content.decode())
            name = canonicalize_name(headers["Package"] or headers["Name"])
            installed.add((kind, name, headers["Version"]))
    assert {kind for kind, *_ in installed} == {"deb", "pypi"}
    assert named == installed


def test_everything_above_the_base_belongs_to_an_sbom_package(image: tuple[str, Image]) -> None:
    program, built = image
    owned = {f"usr/share/sbom/numazones-{program}.cdx.json"}
    for name, content in built.contents.items():
        if name.endswith(".dist-info/RECORD"):
            site = Path(name).parents[1]
            for path, *_ in csv.reader(content.decode().splitlines()):
                owned.add(os.path.normpath(site / path))
    # What is compiled when the image is built is compiled of what a package brings.
    compiled = {
        name: re.sub(r"__pycache__/(.*)\.cpython-311\.pyc$", r"\1.py", name) for name in built.contents
    }
    above = {name for name in built.contents if name.startswith(("usr/local/", "usr/share/sbom/"))}
    assert len(above) > 500
    referred = {
        reference["url"]
        for item in bill_of(program, built)["components"]
        for reference in item.get("externalReferences", ())
        if reference["type"] == "bom"
    }
    assert referred == {f"file:///{name}" for name in above if ".dist-info/sboms/" in name}
    assert {name for name in above if not {name, compiled[name]} & owned} == set()
