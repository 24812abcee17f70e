"""Tests that releases are reproducible, listed, and made by a workflow that nobody else can change."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.specifiers import SpecifierSet

from tests.places import ROOT
from tools.locked import DISTRIBUTIONS, siblings
from tools.targets import PYTHONS

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ZIZMOR = ROOT / ".cache" / "audit" / "bin" / "zizmor"
HASH = r"    --hash=sha256:[0-9a-f]{64}"
LOCKED = re.compile(rf"^[a-z0-9._-]+==\S+ \\\n(?:{HASH} \\\n)*{HASH}\n", re.MULTILINE)


def build_wheel(source: Path, folder: Path, *, umask: int = 0o022) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=source,
        env={"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": "1767225600"},
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module", params=DISTRIBUTIONS)
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(DISTRIBUTIONS[request.param], tmp_path_factory.mktemp("wheel"))


def distribution_of(wheel: Path) -> str:
    return wheel.name.partition("-")[0].replace("_", "-")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project in another folder, with other modes and times."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if files.returncode != 0:
        pytest.skip("this is not a checkout, which says what belongs to the project")
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in files.stdout.split("\0"):
        if not name or not (ROOT / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            (folder / name).symlink_to((ROOT / name).readlink())
        else:
            shutil.copyfile(ROOT / name, folder / name)
            os.utime(folder / name, (1, 1))
    return folder


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_builds_in_other_folders_at_other_times_are_identical(
    wheel: Path, elsewhere: Path, tmp_path: Path
) -> None:
    source = elsewhere / DISTRIBUTIONS[distribution_of(wheel)].relative_to(ROOT)
    again = build_wheel(source, tmp_path, umask=0o077)
    assert (again.name, sha256(again)) == (wheel.name, sha256(wheel))


def package_chart(source: Path, folder: Path, *options: str, umask: int = 0o022) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "tools.package_chart", str(folder), *options],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
    )
    assert done.returncode == 0, done.stderr
    (chart,) = folder.iterdir()
    assert done.stdout == f"{chart}\n"
    return chart


def test_two_archives_of_the_chart_are_alike_byte_for_byte(elsewhere: Path, tmp_path: Path) -> None:
    one = package_chart(ROOT, tmp_path / "one")
    other = package_chart(elsewhere, tmp_path / "other", umask=0o077)
    assert (other.name, sha256(other)) == (one.name, sha256(one))


def bill(wheel: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tools.sbom", str(wheel)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheels_sbom_is_valid_and_lists_the_locked_packages(wheel: Path) -> None:
    text = bill(wheel)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == bill(wheel)
    read = json.loads(text)
    subject = read["metadata"]["component"]
    assert subject["purl"].startswith(f"pkg:pypi/{distribution_of(wheel)}@")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert subject["hashes"] == [{"alg": "SHA-256", "content": digest}]
    lock = dict(re.findall(r"^(\S+?)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    found = {item["name"]: item["version"] for item in read["components"]}
    own = {name: found.pop(name) for name in found.keys() & DISTRIBUTIONS.keys()}
    assert own == dict.fromkeys(siblings(distribution_of(wheel)), metadata.version("numazones"))
    assert {name: lock[name] for name in found} == found
    direct = {"numazones": {"aiohttp", "kopf", "msgspec"}, "numazones-lab": {"aiohttp", "jsonpatch"}}
    assert {"pydantic"} | direct.get(distribution_of(wheel), set()) <= found.keys()
    assert ("kopf" in found) == (distribution_of(wheel) == "numazones")
    assert not {"pytest", "ruff", "zizmor"} & found.keys()
    edges = {item["ref"]: item.get("dependsOn", []) for item in read["dependencies"]}
    (pydantic,) = (ref for ref in edges if ref.startswith("pkg:pypi/pydantic@"))
    assert any(ref.startswith("pkg:pypi/pydantic-core@") for ref in edges[pydantic])


def test_the_bills_of_images_are_valid() -> None:
    found = sorted((ROOT / ".cache" / "images" / "context").glob("*/sbom.cdx.json"))
    if not found:
        pytest.skip("there are no images: make images has not been run")
    for path in found:
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text()) is None, path


@pytest.mark.parametrize("name", ["requirements.txt", "tools/audit-tools.txt", "tools/test-tools.txt"])
def test_everything_that_is_fetched_is_pinned_by_hash(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#") and line.strip())
    assert LOCKED.sub("", text) == ""
    assert "==" in text


def test_images_have_the_same_packages_on_every_architecture() -> None:
    def packages(name: str) -> dict[str, tuple[str, str]]:
        lines = (ROOT / "tools" / "images" / name).read_text().splitlines()[1:]
        return {line.split()[0]: (line.split()[1], line.split()[2]) for line in lines}

    amd64, arm64 = packages("base.lock"), packages("base.arm64.lock")
    assert {name: version for name, (version, _) in amd64.items()} == {
        name: version for name, (version, _) in arm64.items()
    }
    assert amd64["libc6"][1] != arm64["libc6"][1]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(request.param.read_text())
    return found


def test_workflows_use_actions_by_commit_and_leave_no_credentials_behind(workflow: dict[str, Any]) -> None:
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step for step in steps if "uses" in step]
    assert used
    for step in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_workflows_have_minimal_permissions_and_run_no_foreign_text(
    workflow: dict[str, Any],
) -> None:
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        writes = {scope for scope, right in job["permissions"].items() if right == "write"}
        assert not writes or name == "publish", name
        assert not [step for step in job["steps"] if "${{" in step.get("run", "")], name


def test_every_python_that_the_project_supports_is_tested_on() -> None:
    (ci,) = (yaml.safe_load(path.read_text()) for path in WORKFLOWS if path.name == "ci.yml")
    assert tuple(ci["jobs"]["pythons"]["strategy"]["matrix"]["python"]) == PYTHONS


def test_a_release_is_published_only_after_tests_and_all_builds() -> None:
    (release,) = (yaml.safe_load(path.read_text()) for path in WORKFLOWS if path.name == "release.yml")
    jobs = release["jobs"]
    assert set(jobs["publish"]["needs"]) == jobs.keys() - {"publish"}
    assert [step["run"] for step in jobs["test"]["steps"] if step.get("run", "").startswith("make ")] == [
        "make test check",
        "make audit",
    ]
    assert {entry["architecture"] for entry in jobs["images"]["strategy"]["matrix"]["include"]} == {
        "amd64",
        "arm64",
    }


def test_commits_that_their_author_has_not_signed_off_are_named(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        settings = (
            "-c",
            "user.name=Ada Lovelace",
            "-c",
            "user.email=ada@example.org",
            "-c",
            "commit.gpgsign=false",
        )
        done = subprocess.run(
            ["git", *settings, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def checked(base: str) -> tuple[int, str]:
        done = subprocess.run(
            [ROOT / "tools" / "signed-off", f"{base}..HEAD"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message=Before the rule")
    begin = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--allow-empty", "--signoff", "--message=Signed off")
    assert checked(begin) == (0, "")
    git(
        "commit", "--quiet", "--allow-empty", "--message=By another\n\nSigned-off-by: Charles <c@example.org>"
    )
    code, said = checked(begin)
    assert code == 1
    assert said.endswith(
        'By another: its message lacks the line "Signed-off-by: Ada Lovelace <ada@example.org>";'
        " git rebase --signoff adds it\n"
    )


def test_zizmor_finds_nothing_in_the_workflows() -> None:
    if not ZIZMOR.exists():
        pytest.skip("there is no zizmor: make audit has not been run")
    done = subprocess.run(
        [ZIZMOR, "--offline", "--persona=pedantic", "--no-progress", str(ROOT / ".github")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_locked_package_installs_on_the_oldest_supported_python() -> None:
    oldest = "3.11.0"  # Debian 12 ships 3.11.2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SpecifierSet(project["requires-python"]).contains(oldest)
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert len(locked) > 50
    wanted = {name: str(metadata.metadata(name).json.get("requires_python", "")) for name in locked}
    assert {
        name: python for name, python in wanted.items() if not SpecifierSet(python).contains(oldest)
    } == {}
