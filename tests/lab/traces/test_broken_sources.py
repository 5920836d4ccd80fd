"""Broken sources: each is answered with one line that names file, line and field."""

import pytest
from tests.lab.traces.sources import (
    BURST,
    MOON,
    PUBLISHED,
    SESSION,
    VTC,
    imported,
    servegen_files,
    written,
)

from fairhit.errors import ConfigError

BROKEN = [
    ("vtc", [VTC, "0,1,2"], "2: expected 4 fields as in the header, got 3"),
    ("vtc", ["a,b"], "1: expected columns t_s,client,input_tokens,output_tokens, got a,b"),
    ("vtc", [VTC, "x,1,2,3"], '2: field "t_s": expected seconds from 0 to 100000000000, got "x"'),
    ("vtc", [VTC, "0,1,2.5,3"], '2: field "input_tokens": expected a whole number from 1 to'),
    (
        "vtc",
        [VTC, "0,1,0,3"],
        '2: field "input_tokens": expected a whole number from 1 to 1000000000, got 0',
    ),
    (
        "vtc",
        [VTC, "nan,1,1,3"],
        '2: field "t_s": expected seconds from 0 to 100000000000, got "nan"',
    ),
    ("vtc", [VTC, "2,1,1,3", "1,1,1,3"], "3: expected lines sorted by time"),
    ("azure", [PUBLISHED, "yesterday,1,1"], '2: field "TIMESTAMP": expected a date and time like'),
    (
        "azure",
        [PUBLISHED, "2023-11-16 18:15:46,1,x"],
        '2: field "GeneratedTokens": expected a whole',
    ),
    (
        "burstgpt",
        [BURST, "5,,472,18,490,log"],
        '2: field "Model": expected a string that is not empty, got ""',
    ),
    (
        "csv",
        ["client,arrival,input,output", "a,1,5,0"],
        '2: field "output": expected a whole number from 1',
    ),
    (
        "csv",
        ["client,arrival,input,output,prefix", "a,1,5,1,s"],
        '2: field "prefix_len": expected a length',
    ),
    (
        "csv",
        ["client,arrival,input,output,weight", "a,1,5,1,0"],
        '2: field "weight": expected a positive',
    ),
    (
        "csv",
        ["client,arrival,input,output,prefix,prefix_len", "a,1,5,1,s,6"],
        '2: field "prefix_len": expected at most input = 5',
    ),
    (
        "mooncake",
        [{**MOON, "hash_ids": 5}],
        '1: field "hash_ids": expected a list of block numbers, got 5',
    ),
    (
        "mooncake",
        [{**MOON, "hash_ids": [1]}],
        '1: field "hash_ids": expected 2 blocks for 600 tokens, got 1',
    ),
    (
        "mooncake",
        [{**MOON, "timestamp": -1}],
        '1: field "timestamp": expected a whole number from 0',
    ),
    (
        "mooncake",
        [{"timestamp": 1}],
        '1: field "input_length": expected a value, got no such field',
    ),
    (
        "mooncake",
        [MOON, {**MOON, "timestamp": 1}],
        '2: field "timestamp": expected lines sorted by time, 3000',
    ),
    ("mooncake", ["{"], "1: malformed JSON"),
    ("agentic", [{**SESSION, "requests": [[0]]}], '1: field "requests[0]": expected [stream, t_s'),
    (
        "agentic",
        [{**SESSION, "requests": [[0, 0, 200, 1, 1, 0, 9, []]]}],
        '1: field "requests[0][6]": expected a whole number from 0 to 0, got 9',
    ),
    (
        "agentic",
        [{**SESSION, "requests": [[0, 0, 200, 1, 1, 0, 0, [[1, 2]]]]}],
        '1: request 0: field "hash_ids": expected 3 blocks',
    ),
    ("agentic", [{"session": "s"}], '1: field "block_size": expected a value'),
    (
        "agentic",
        [{**SESSION, "block_size": 0}],
        '1: field "block_size": expected a whole number from 64',
    ),
]


@pytest.mark.parametrize(("name", "lines", "complaint"), BROKEN)
def test_a_broken_source_is_one_line_with_its_place(tmp_path, name, lines, complaint):
    path = written(tmp_path / "source", *lines)

    with pytest.raises(ConfigError) as error:
        imported(name, path)

    assert str(error.value).startswith(f"{path}:{complaint}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrivals", "complaint"),
    [
        (
            "m,1,0,3,1,Pareto,1,1",
            r'arrivals\.csv:2: field "pattern": expected Gamma or Weibull, got "Pareto"',
        ),
        (
            "m,1,0,0,1,Gamma,1,1",
            r'arrivals\.csv:2: field "rate_per_s": expected a number above 0, got "0"',
        ),
        (
            "m,1,0,3,1,Gamma,x,1",
            r'arrivals\.csv:2: field "shape": expected a number from 0, got "x"',
        ),
        ("m,3,0,3,1,Gamma,1,1", r"arrivals\.csv: no client of model m"),
    ],
)
def test_a_broken_client_model_is_named(tmp_path, arrivals, complaint):
    with pytest.raises(ConfigError, match=complaint):
        imported(
            "servegen", *servegen_files(tmp_path, arrivals), model="m", start=0.0, duration=600.0
        )
