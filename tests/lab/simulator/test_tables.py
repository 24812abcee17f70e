from numazones_simulator import tables

TABLE = {
    "kind": "Table",
    "columnDefinitions": [
        {"name": "Name", "type": "string", "priority": 0},
        {"name": "Ready", "type": "boolean", "priority": 0},
        {"name": "Note", "type": "string"},
        {"name": "IP", "type": "string", "priority": 1},
    ],
    "rows": [
        {"cells": ["a", True, "first\nsecond", "10.0.0.1"]},
        {"cells": ["longer-name", False, None, None]},
    ],
}


def test_columns_are_laid_out_as_kubectl_does() -> None:
    assert tables.render(TABLE) == (
        "NAME          READY   NOTE\n"
        "a             true    first\n"
        "longer-name   false   \n"
    )  # fmt: skip


def test_wide_columns_on_demand() -> None:
    assert tables.render(TABLE, wide=True) == (
        "NAME          READY   NOTE    IP\n"
        "a             true    first   10.0.0.1\n"
        "longer-name   false           \n"
    )  # fmt: skip


def test_a_table_without_rows_is_empty() -> None:
    assert tables.render({**TABLE, "rows": []}) == ""


def test_narrow_terminal_gets_all_columns_with_smaller_gaps() -> None:
    assert tables.render(TABLE, columns=28).splitlines()[0] == "NAME         READY  NOTE"
    assert tables.render(TABLE, columns=20).splitlines()[0] == "NAME         READY"
