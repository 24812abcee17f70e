from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import InvalidQuantity


@pytest.mark.parametrize(
    ("text", "value", "milli", "as_int"),
    [
        ("0", 0, 0, 0),
        (4, 4, 4000, 4),
        (0.5, 1, 500, None),
        ("1", 1, 1000, 1),
        ("+1", 1, 1000, 1),
        ("-1500m", -2, -1500, None),
        ("007", 7, 7000, 7),
        ("500m", 1, 500, None),
        ("2000m", 2, 2000, None),  # whole, yet held as thousandths
        ("2.0", 2, 2000, None),
        ("1.", 1, 1000, 1),
        (".5", 1, 500, None),
        ("1u", 1, 1, None),
        ("1n", 1, 1, None),
        ("0.1n", 1, 1, None),
        ("1k", 1000, 1000000, 1000),
        ("1e3", 1000, 1000000, 1000),
        ("1E3", 1000, 1000000, 1000),
        ("12E-1", 2, 1200, None),
        ("1E", 10**18, 10**21, 10**18),
        ("9G", 9 * 10**9, 9 * 10**12, 9 * 10**9),
        ("1Ki", 1024, 1024000, 1024),
        ("16Gi", 16 << 30, (16 << 30) * 1000, 16 << 30),
        (" 1Mi ", 1 << 20, (1 << 20) * 1000, 1 << 20),
        ("1.5Gi", 3 << 29, (3 << 29) * 1000, None),
        ("99999Gi", 99999 << 30, (99999 << 30) * 1000, 99999 << 30),
        ("100000Gi", 100000 << 30, (100000 << 30) * 1000, None),
        ("99Ti", 99 << 40, (99 << 40) * 1000, 99 << 40),
        ("100Ti", 100 << 40, (100 << 40) * 1000, None),
        ("1Pi", 1 << 50, (1 << 50) * 1000, None),
        ("0.5Ki", 512, 512000, None),
        ("1000Ei", 2**63 - 1, (2**63 - 1) * 1000, None),
        ("10E", 10**19, 10**22, None),
        ("1234567890123456789", 1234567890123456789, 1234567890123456789000, None),
        ("123456789012345678", 123456789012345678, 123456789012345678000, 123456789012345678),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(
    text: str | float, value: int, milli: int, as_int: int | None
) -> None:
    parsed = quantity.parse(text)
    assert (parsed.value(), parsed.milli(), parsed.as_int()) == (value, milli, as_int)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1x",
        "1gi",
        "1KI",
        "--1",
        "1 Gi",
        "1e",
        "1e+",
        "Gi",
        "nan",
        "inf",
        "1K",
        True,
        "1e99999",
        "\u0661",
    ],
)
def test_anything_else_is_rejected_and_quoted(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="is not a Kubernetes quantity"):
        quantity.parse(text)


def test_amounts_compare_whatever_their_spelling() -> None:
    assert quantity.parse("1.5Gi") == quantity.parse("1536Mi")
    assert hash(quantity.parse("2000m")) == hash(quantity.parse("2"))
    assert quantity.parse("1Gi") > quantity.parse("1G")
    assert quantity.parse("500m") + quantity.parse("1.5") == quantity.parse(2)
    assert not quantity.parse("0Gi")


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1000, "1000"),
        (1024, "1Ki"),
        (1536 << 20, "1536Mi"),
        (16 << 30, "16Gi"),
        (1 << 70, "1024Ei"),
    ],
)
def test_bytes_are_written_in_the_largest_binary_unit(amount: int, text: str) -> None:
    assert quantity.format_bytes(amount) == text


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("0.5Ki", "512"),
        ("2000m", "2"),
        ("0.5", "500m"),
        ("1000M", "1G"),
        ("1e3", "1e3"),
        ("10e2", "1e3"),
        ("9e99", "9e99"),
        ("-1e1000", "-10e999"),
        ("1e-1", "100e-3"),
        ("5e0", "5"),
        ("1.0001Mi", "1048680857600u"),
        ("1.2Gi", "1288490188800m"),
        (".2Ei", "230584300921369395200m"),
        ("-1.2Gi", "-1288490188800m"),
        ("0Gi", "0"),
        ("1500", "1500"),
        ("-1Ki", "-1Ki"),
    ],
)
def test_the_canonical_text_is_what_the_api_stores(written: str, stored: str) -> None:
    assert quantity.parse(written).canonical() == stored


@given(
    st.from_regex(r"-?[0-9]{0,9}\.?[0-9]{1,9}([numkMGTPE]|[KMGTPE]i|e-?[0-9])?", fullmatch=True)
    | st.from_regex(r"-?[0-9]{55,60}\.?[0-9]{0,60}([numkMGTPE]|[KMGTPE]i|e-?[0-9]{1,3})?", fullmatch=True)
)
@example("9e99")
def test_the_canonical_text_is_read_as_the_same_amount(written: str) -> None:
    try:
        found = quantity.parse(written)
    except quantity.InvalidQuantity:
        assert len(written) > 55  # more digits than are stored
        return
    assert quantity.parse(found.canonical()) == found


def test_sums_keep_the_binary_notation() -> None:
    assert (quantity.ZERO + quantity.parse("512Mi") + quantity.parse("512Mi")).canonical() == "1Gi"


@pytest.mark.parametrize(("amount", "text"), [(0, "0"), (1500, "1500m"), (2000, "2"), (1, "1m")])
def test_thousandths_are_written_short(amount: int, text: str) -> None:
    assert quantity.format_milli(amount) == text


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi", "m", "u"]),
)
def test_the_amount_is_exact_and_rounded_up(whole: int, fraction: int, suffix: str) -> None:
    units: dict[str, int | Fraction] = {
        "": 1, "k": 1000, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
        "m": Fraction(1, 1000), "u": Fraction(1, 10**6),
    }  # fmt: skip
    exact = Fraction(f"{whole}.{fraction}") * units[suffix]
    exact = Fraction(-(-exact * 10**9 // 1), 10**9)
    parsed = quantity.parse(f"{whole}.{fraction}{suffix}")
    assert parsed.value() == -(-exact // 1)
    assert parsed.milli() == -(-exact * 1000 // 1)


@given(st.integers(0, 2**60))
def test_written_bytes_are_read_back(amount: int) -> None:
    assert quantity.parse(quantity.format_bytes(amount)).value() == amount
