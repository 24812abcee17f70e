"""The reference of the custom resources tells every field, and nothing else."""

from pathlib import Path

from numazones.api import reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "resources.md"


def test_the_reference_is_in_step_with_the_models() -> None:
    text = DOCUMENT.read_text()
    assert reference.MARKER in text
    assert reference.renewed(text) == text, "run make crds"


def test_the_tables_name_fields_columns_and_defaults() -> None:
    tables = reference.tables()
    assert "| `status.assignments[].memory[].numaIDs` | list of integers |" in tables
    assert "| `status.resources[].name` | string | cpu, memory, hugepages-&lt;size> or " in tables
    assert "| HEADROOM (wide) | Largest request for exclusive CPUs |" in tables
    assert "One of `Recommend`, `Approve`, `Auto`. Default `Recommend`. |" in tables


def test_the_command_renews_one_file(tmp_path: Path) -> None:
    path = tmp_path / "resources.md"
    path.write_text(f"# Head\n{reference.MARKER}old\n")
    assert reference.main([str(path)]) == 0
    assert path.read_text() == f"# Head\n{reference.MARKER}{reference.tables()}"
