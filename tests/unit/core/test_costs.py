"""Costs beyond the linear one: their formulas, their sums, and how they are written."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.core.costs import MODELS, PROFILED, cost_words, parse_cost
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.errors import ConfigError

PIECEWISE = "piecewise:1,0.5@10/2,4@5,0.00000001@7"


def profiled(x, y):
    """As the code of VTC prints it."""
    return (
        Fraction("0.21001891") * x
        + Fraction("0.10075395") * y
        + Fraction("0.0039868") * x * y
        + Fraction("0.00324733") * y * y
        + Fraction("1.14601454")
    )


def flops(x, y):
    """Llama-3.2-3B: 2 P for each token, 4 L d for each pair of a token and one up to it; over 2 P."""
    pairs = sum(range(1, x + y + 1))
    p = 3_212_749_824
    return Fraction(2 * p * (x + y) + 4 * 28 * 3072 * pairs, 2 * p)


def piecewise(x, y):
    prices = [(2, 4, Fraction(1, 10**8))[(at >= 5) + (at >= 7)] for at in range(y)]
    return sum((1 if at < 10 else Fraction(1, 2)) for at in range(x)) + sum(prices)


FORMULAS = [
    ("linear:1,2", lambda x, y: x + 2 * y),
    ("linear:0.5,0.00000001", lambda x, y: Fraction(x, 2) + Fraction(y, 10**8)),
    ("profiled", profiled),
    ("flops:llama-3.2-3b", flops),
    (PIECEWISE, piecewise),
]


@pytest.mark.parametrize(("text", "formula"), FORMULAS, ids=[text for text, _ in FORMULAS])
@given(x=st.integers(1, 40), cuts=st.lists(st.integers(0, 9), max_size=6))
def test_the_charges_of_a_request_add_up_to_its_cost(text, formula, x, cuts):
    """However its output is cut, the sum is h(input, output) rounded half up once."""
    cost, y = parse_cost(text), sum(cuts)
    charges = [cost.prefill(x)]
    for at, tokens in enumerate(cuts):
        charges.append(cost.decode(x, sum(cuts[:at]), tokens))

    exact = formula(x, y) * UNITS_PER_TOKEN
    assert sum(charges) == (exact + Fraction(1, 2)).__floor__()
    assert min(charges) >= 0


def test_the_profiled_cost_is_near_what_the_paper_prints():
    """
    Appendix B.2 prints ten times the code's constants: a request of 256 + 256 tokens.
    """
    printed = 2.1 * 256 + 256 + 0.04 * 256 * 256 + 0.032 * 256**2 + 11.46
    ours = (PROFILED.prefill(256) + PROFILED.decode(256, 0, 256)) / UNITS_PER_TOKEN

    assert 10 * ours == pytest.approx(printed, rel=0.02)


def test_linear_is_the_cost_the_schedulers_have_by_default():
    assert parse_cost("linear:1,2") == TokenCost()


@pytest.mark.parametrize(
    "text",
    ["linear:1,2", "linear:0.5,1000000", "context:3,0.00270001", "context:3,0.5,0.25", "profiled",
     "flops:llama-3.2-3b", "piecewise:1,0.5@1000/2,4@500"],
)  # fmt: skip
def test_a_cost_in_words_is_the_text_that_names_it(text):
    """What the log says at a start can be given as a setting."""
    assert cost_words(parse_cost(text)) == text


def test_a_cost_that_follows_the_passes_says_so():
    assert cost_words(parse_cost("engine")) == "engine (fitted)"


@pytest.mark.parametrize("model", MODELS)
def test_a_first_token_costs_about_one_token(model):
    """
    So that a quantum means the same under any model; attention adds little to it.
    """
    assert MODELS[model].prefill(1) / UNITS_PER_TOKEN == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cubic", "cost: expected linear:INPUT,OUTPUT | profiled |"),
        ("", "cost: expected linear:INPUT,OUTPUT"),
        ("linear:1", "cost 'linear:1': expected linear:INPUT,OUTPUT"),
        (
            "linear:1,-2",
            "expected a price from 0 to 1,000,000 with at most eight decimals, got '-2'",
        ),
        ("linear:1e300,2", "expected a price from 0 to 1,000,000 with at most eight decimals"),
        ("linear:1e3000000,2", "got '1e3000000'"),
        ("linear:1,nan", "got 'nan'"),
        ("linear:1,0.000000001", "got '0.000000001'"),
        ("linear:0,0", "expected a price above 0"),
        ("profiled:7", "expected profiled without anything after it"),
        (
            "flops:gpt",
            "expected flops: and one of llama-2-7b, llama-2-13b, llama-3.1-8b, llama-3.2-3b",
        ),
        ("piecewise:1", "expected piecewise:INPUT PRICES/OUTPUT PRICES"),
        ("piecewise:1/2,3@x", "expected PRICE@FROM with FROM a whole number, got '3@x'"),
        ("piecewise:1/2@5", "expected a first price and then rising positions, got '2@5'"),
        ("piecewise:1,2@9,3@9/1", "expected a first price and then rising positions"),
        ("piecewise:,/1", "got ''"),
    ],
)
def test_a_cost_that_makes_no_sense_is_one_clear_line(text, message):
    with pytest.raises(ConfigError) as error:
        parse_cost(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
