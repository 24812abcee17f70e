"""Files made to hang, fill the memory or read other files end with one line that names them."""

import gzip
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import Result

from kubectl_numazones.reading import file_content
from kubectl_numazones.reading.tree_archive import BadArchive, members, unpack
from numazones.apimachinery import documents
from numazones.errors import NumazonesError
from tests.places import DATA

Run = Callable[..., Result]
CPU = "sys/devices/system/cpu"
MERGES = "g0: &g0 {k: v}\n" + "".join(
    f"g{level}: &g{level} {{<<: [{','.join([f'*g{level - 1}'] * 9)}]}}\n" for level in range(1, 10)
)


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return Path(shutil.copytree(DATA / "kubectl" / "recorded", tmp_path / "recorded"))


def refused(run: Run, path: Path, *arguments: object) -> str:
    error = run(*arguments).exception
    assert isinstance(error, NumazonesError), error
    said = str(error)
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < 500
    return said


def archive(*entries: tuple[str, bytes, bytes | str], form: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=form) as tree:
        for name, kind, content in entries:
            member = tarfile.TarInfo(name)
            member.type = kind
            if isinstance(content, str):
                member.linkname = content
                tree.addfile(member)
            else:
                member.size = len(content)
                tree.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def sparse_entry(size: int) -> bytes:
    member = tarfile.TarInfo(f"{CPU}/online")
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    head[156:157] = tarfile.GNUTYPE_SPARSE
    head[483:495] = b"%011o\0" % size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return gzip.compress(bytes(head) + bytes(1024))


def cpus(count: int) -> Iterable[tuple[str, bytes, bytes]]:
    for cpu in range(count):
        yield f"{CPU}/cpu{cpu}", tarfile.DIRTYPE, b""


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (
            archive(
                (f"{CPU}/cpu0", tarfile.SYMTYPE, "../../../../../../../../../../dev"),
                (f"{CPU}/online", tarfile.SYMTYPE, "cpu0/zero"),
            ),
            "points outside the archive",
        ),
        (archive((f"{CPU}/online", tarfile.SYMTYPE, "/dev/zero")), "points outside the archive"),
        (archive((f"{CPU}/online", tarfile.SYMTYPE, "online")), "points outside the archive"),
        (
            archive((f"{CPU}/cpu0", tarfile.SYMTYPE, "/"), (f"{CPU}/cpu0/online", tarfile.REGTYPE, b"1")),
            "cannot be created",
        ),
        (archive(("../x", tarfile.REGTYPE, b"")), "outside the archive"),
        (archive(("/x", tarfile.REGTYPE, b"")), "outside the archive"),
        (sparse_entry(16 << 30), ""),
        (gzip.compress(bytes(65 << 20)), "unpacks to more than 64 MiB"),
        (archive((f"{CPU}/online", tarfile.REGTYPE, bytes(17 << 20))), "larger than 16 MiB"),
        (archive((f"{CPU}/online", tarfile.XHDTYPE, b"9" * 1000)), "extended header"),
        (archive((f"{CPU}/online", tarfile.XHDTYPE, bytes(9 << 20))), "extended headers"),
        (archive(*cpus(20_000)), "20,000 CPUs"),
        (gzip.compress(b"x" * 2000), "header"),
        (gzip.compress(gzip.decompress(archive(*cpus(1))).replace(b"cpu0", b"cpu1")), "a header is damaged"),
        (
            archive((f"{CPU}/online", tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n"), *cpus(1)),
            "is a sparse file",
        ),
        (gzip.compress(b""), "not an archive"),
        (archive(*cpus(2))[:-30], "truncated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_tree_is_named_and_leaves_nothing(
    run: Run, recording: Path, packed: bytes, said: str
) -> None:
    tree = recording / "node-1" / "sys.tar.gz"
    tree.write_bytes(packed)
    assert said in refused(run, tree.parent, "replay", recording)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_an_archive_of_too_many_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_numazones.reading.tree_archive.MOST_MEMBERS", 1000)
    head = tarfile.TarInfo("x").tobuf()
    with pytest.raises(BadArchive, match="more than 1,000 members"):
        list(members(head * 1001))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_and_links_are_unpacked_as_they_were_packed(tmp_path: Path, form: int) -> None:
    long = f"sys/{'d' * 80}/{'e' * 60}"
    packed = archive(
        (f"{CPU}/cpu0", tarfile.DIRTYPE, b""),
        (f"{long}/file", tarfile.REGTYPE, b"content"),
        (f"{long}/link", tarfile.SYMTYPE, "file"),
        ("sys/far", tarfile.SYMTYPE, "d" * 80),
        ("sys/fifo", tarfile.FIFOTYPE, b""),
        form=form,
    )
    unpack(list(members(packed)), tmp_path)
    assert (tmp_path / CPU / "cpu0").is_dir()
    assert (tmp_path / long / "link").read_text() == "content"
    assert (tmp_path / "sys/far" / ("e" * 60) / "link").read_text() == "content"
    assert not (tmp_path / "sys/fifo").exists()


@pytest.mark.parametrize("name", ["node.json", "kubelet-config.yaml", "device_plugins.json", "sys.tar.gz"])
def test_a_link_to_a_device_in_a_recording_is_named(run: Run, recording: Path, name: str) -> None:
    path = recording / "node-1" / name
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "is not a regular file" in refused(run, path, "replay", recording)


def test_a_pipe_in_a_recording_is_named(run: Run, recording: Path) -> None:
    path = recording / "node-1" / "node.json"
    path.unlink()
    os.mkfifo(path)
    assert "is not a regular file" in refused(run, path, "replay", recording)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("kubelet-config.yaml", MERGES, "more than 50,000 values"),
        ("kubelet-config.yaml", "- " * 3000, "nested more than"),
        ("node.json", "[" * 100_000, "nested more than"),
        ("node.json", '{"a":' + "9" * 4000 + "}", "64 digits"),
    ],
)
def test_a_hostile_file_of_a_recorded_node_is_named(
    run: Run, recording: Path, name: str, content: str, said: str
) -> None:
    path = recording / "node-1" / name
    path.write_text(content)
    assert said in refused(run, path, "replay", recording)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("dump.yaml", MERGES.replace("9", "99"), "is truncated"),
        ("dump.yaml", MERGES, "more than 400,000 values"),
        ("dump.yaml", "- " * 3000, "nested more than"),
        ("dump.json", "[" * 100_000, "nested more than"),
        ("dump.json", '{"kind":"Pod","a":"' + "x" * (17 << 20) + '"}', "more than 16 MiB"),
        ("dump.json", '{"kind":"Pod","a":' + "[" * 900 + "]" * 900 + "}", "nested more than"),
        ("dump.json", '{"kind":"PodList","items":[' + "{}," * 200_000 + "{}]}", "more than 200,000 items"),
        ("dump.json", '{"kind":"PodList","items":[' + "1," * 4_000_001, "more than 200,000 items"),
        (
            "dump.json",
            '{"kind":"PodList","items":[' + '{"a":' * 100 + "1" + "}" * 100 + "]}",
            "nested more than",
        ),
    ],
)
def test_a_hostile_dump_is_named(run: Run, tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert said in refused(run, path, "top", "-f", path)


def test_file_that_never_ends_is_read_up_to_a_bound(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = file_content.read_file

    def counted(path: Path, most: int, *, regular: bool = False) -> bytes:
        asked.append(most)
        return read(path, 1 << 20, regular=regular)

    monkeypatch.setattr("kubectl_numazones.reading.files.read_file", counted)
    link = tmp_path / "dump.json"
    link.symlink_to("/dev/zero")
    assert "is larger than" in refused(run, link, "top", "-f", link)
    assert asked == [documents.DUMP.size]


def test_a_policy_of_merges_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(MERGES)
    said = refused(run, path, "plan", "--policy", path, "-f", DATA / "rebalance" / "dump.json")
    assert "more than 50,000 values" in said


def test_a_kept_miss_that_is_a_bomb_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "miss.json.gz"
    path.write_bytes(gzip.compress(json.dumps("x" * (20 << 20)).encode()))
    error = run("replay", path).exception
    assert isinstance(error, NumazonesError)
    assert "unpacks to more than 16 MiB" in str(error)
