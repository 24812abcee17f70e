"""Pages for readers: no placeholders, no versions to come, columns that exist, installs that work."""

import re
import tomllib

import yaml

from numazones.api import crd
from tests.places import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = [
    path
    for folder in ("numazones", "support", "exporter", "operator", "kubectl", "models", "lab")
    for path in (ROOT / folder).rglob("*.py")
]


def test_pages_have_no_placeholder_and_no_later_version() -> None:
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    assert [page for page, text in texts.items() if re.search(r"\b(?:SIZE MB|TODO|TBD|FIXME)\b", text)] == []
    now = tuple(map(int, VERSION.split(".")))
    versions = {
        (page, tuple(map(int, found)))
        for page, text in texts.items()
        for found in re.findall(r"(?:since |numazones-\w+:)(0)\.(\d+)\.(\d+)", text)
    }
    assert {(page, found) for page, found in versions if found > now} == set()


def test_troubleshooting_names_columns_that_kubectl_prints() -> None:
    columns = {column.name.upper() for kind in crd.KINDS for column in kind.RESOURCE.columns}
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    named = re.findall(r"^\| ([A-Z-]{4,}) `", page, re.MULTILINE)
    assert named
    assert set(named) <= columns


def test_installs_are_from_the_checkout() -> None:
    assert [path for path in (*PAGES, *CODE) if "pip install 'numazones[" in path.read_text()] == []


def test_each_component_has_its_own_comment() -> None:
    lines = (ROOT / "manifests" / "kustomization.yaml").read_text().splitlines()
    about = {"cgroups": "cgroups", "recordings": "recordings", "page": "page", "eviction": "evict"}
    for name, word in about.items():
        (index,) = [number for number, line in enumerate(lines) if line.endswith(f"-{name}")]
        assert word in lines[index - 1]


def test_the_chart_has_an_icon() -> None:
    assert yaml.safe_load((ROOT / "manifests" / "chart" / "Chart.yaml").read_text())["icon"]
