"""Tables of columns: which are shown, and how they are laid out where nothing is folded."""

from numazones_program.columns import Column, cells, plain, shown

COLUMNS: tuple[Column[tuple[str, int]], ...] = (
    Column("NAME", lambda row: row[0]),
    Column("TWICE", lambda row: str(2 * row[1]), right=True, wide=True),
    Column("COUNT", lambda row: str(row[1]), right=True),
    Column("NOTE", lambda row: "odd" if row[1] % 2 else ""),
)
ROWS = [("a", 1), ("long-name", 100)]


def test_wide_columns_are_shown_on_demand() -> None:
    assert [column.title for column in shown(COLUMNS)] == ["NAME", "COUNT", "NOTE"]
    assert cells(shown(COLUMNS, wide=True), ROWS[1]) == ("long-name", "200", "100", "")


def test_figures_are_right_aligned_without_trailing_blanks() -> None:
    assert plain(shown(COLUMNS), ROWS) == (
        "NAME        COUNT   NOTE\n"
        "a               1   odd\n"
        "long-name     100\n"
    )  # fmt: skip


def test_a_table_without_rows_has_its_titles() -> None:
    assert plain(COLUMNS, []) == "NAME   TWICE   COUNT   NOTE\n"
