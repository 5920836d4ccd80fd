"""Importers: what each makes of a source, and the one line a broken source is answered with."""

import pickle
import sys
import types
from collections import Counter
from itertools import pairwise

import pytest
from tests.lab.traces.public_data import DATA, needs_data
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
from fairhit_lab.traces.rows import runs
from fairhit_lab.traces.trace import read_trace
from fairhit_lab.traces.write import line


def summary(rows):
    return [(row.client, row.arrival_us, len(row.prompt), row.output_len) for row in rows]


def test_vtc_rows_are_lengths_that_share_nothing(tmp_path):
    rows = imported("vtc", written(tmp_path / "r.csv", VTC, "0.5,13,10,20", "1.0,2,10,5"))

    assert summary(rows) == [("c13", 500_000, 10, 20), ("c2", 1_000_000, 10, 5)]
    assert rows[0].prompt[0] != rows[1].prompt[0]


def test_one_measured_run_is_chosen(tmp_path):
    path = written(
        tmp_path / "m.csv",
        f"workload,scheduler,{VTC}",
        "a,VTC,0,0,1,1",
        "b,VTC,5,1,2,2",
        "b,FCFS,4,1,3,3",
    )

    assert summary(imported("vtc", path, workload="b", scheduler="VTC")) == [
        ("c1", 5_000_000, 2, 2)
    ]
    with pytest.raises(
        ConfigError, match=r"m\.csv:3: several values of workload: choose with --set"
    ):
        imported("vtc", path)
    with pytest.raises(ConfigError, match="--set scheduler: expected one of VTC, FCFS, got LCF"):
        imported("vtc", path, workload="b", scheduler="LCF")


def pickled(tmp_path, monkeypatch, *requests):
    """As the artifact writes it: [adapter names, requests], of a class called trace.Request."""
    module = types.ModuleType("trace")
    module.Request = type("Request", (), {"__module__": "trace"})
    monkeypatch.setitem(sys.modules, "trace", module)
    made = []
    for fields in requests:
        made.append(module.Request())
        made[-1].__dict__.update(fields)
    path = tmp_path / "real_trace.pkl"
    path.write_bytes(pickle.dumps([["x"], made]))
    return path


def test_the_artifacts_own_pickle_is_read(tmp_path, monkeypatch):
    late = {
        "req_time": 2.5,
        "adapter_dir": "lora-7",
        "prompt_len": 3,
        "output_len": 4,
        "prompt": "Hello",
    }
    early = {**late, "req_time": 1, "adapter_dir": "lora-2"}
    path = pickled(tmp_path, monkeypatch, late, early)

    assert summary(imported("vtc", path)) == [("c0", 1_000_000, 3, 4), ("c1", 2_500_000, 3, 4)]


def test_a_pickle_runs_nothing(tmp_path):
    """A pickle can name any function to call; the importer calls none."""

    class Harm:
        def __reduce__(self):
            return (print, ("harm",))

    path = tmp_path / "t.pkl"
    path.write_bytes(pickle.dumps([[], [Harm()]]))

    with pytest.raises(ConfigError, match=r"t\.pkl: .* got builtins\.print"):
        imported("vtc", path)


def test_a_pickle_with_a_wrong_field_is_named(tmp_path, monkeypatch):
    path = pickled(
        tmp_path, monkeypatch, {"req_time": 1, "adapter_dir": "a", "prompt_len": 0, "output_len": 1}
    )

    with pytest.raises(
        ConfigError, match=r'request 0: field "prompt_len": expected a whole number'
    ):
        imported("vtc", path)


def test_azure_files_share_a_clock_and_are_clients(tmp_path):
    conv = written(
        tmp_path / "conv.csv",
        PUBLISHED,
        "2023-11-16 18:15:46.6805913,374,44",
        "2023-11-16 18:15:50.99,396,109",
    )
    code = written(tmp_path / "code.csv", PUBLISHED, "2023-11-16 18:15:47.5,1000,10")
    rows = imported("azure", conv, code)

    assert summary(rows) == [
        ("conv", 0, 374, 44),
        ("code", 819_409, 1000, 10),
        ("conv", 4_309_409, 396, 109),
    ]


def test_azure_in_seconds_keeps_its_times(tmp_path):
    rows = imported(
        "azure", written(tmp_path / "conv.csv.x", "t_s,input_tokens,output_tokens", "46.681,374,44")
    )

    assert summary(rows) == [("conv", 46_681_000, 374, 44)]


def test_burstgpt_clients_are_models_or_logs(tmp_path):
    path = written(
        tmp_path / "b.csv",
        BURST,
        "5,ChatGPT,472,18,490,Conversation log",
        "45,GPT-4,10,0,10,API log",
    )

    assert summary(imported("burstgpt", path)) == [("ChatGPT", 5_000_000, 472, 18)]
    assert summary(imported("burstgpt", path, failures="one"))[1] == ("GPT-4", 45_000_000, 10, 1)
    assert [row.client for row in imported("burstgpt", path, client="both")] == [
        "ChatGPT Conversation log"
    ]
    with pytest.raises(ConfigError, match=r"expected columns .*Session ID"):
        imported("burstgpt", path, client="session")


def test_plain_csv_takes_what_columns_there_are(tmp_path):
    path = written(
        tmp_path / "p.csv",
        "id,client,arrival,input,output,max_tokens,prefix,prefix_len,weight,program,note",
        "x,a,0.5,100,5,9,sys,60,2.5,p1,first",
        ",b,1,100,5,,sys,60,,,",
    )
    first, second = imported("csv", path)

    assert (first.id, first.max_tokens, first.weight, first.program) == ("x", 9, 2_500_000, "p1")
    assert first.prompt == runs([("prefix:sys", 60), ("x", 40)])
    assert second.prompt == runs([("prefix:sys", 60), (second.id, 40)])


def test_plain_csv_is_sorted_if_asked(tmp_path):
    path = written(tmp_path / "p.csv", "client,arrival,input,output", "a,2,1,1", "b,1,1,1")

    assert [row.client for row in imported("csv", path, sort=True)] == ["b", "a"]
    with pytest.raises(ConfigError, match=r"p\.csv:3: expected lines sorted by time"):
        imported("csv", path)


def test_mooncake_conversations_stay_with_their_client(tmp_path):
    path = written(tmp_path / "m.jsonl", *({**MOON, "hash_ids": [0, 7 + n % 5]} for n in range(50)))
    clients = {(row.program, row.client) for row in imported("mooncake", path, clients=3)}

    assert len(clients) == 5
    assert {row.client for row in imported("mooncake", path, clients=0)} == {
        f"m{n}" for n in range(7, 12)
    }


def test_mooncake_is_spread_thinned_scaled_and_slowed(tmp_path):
    path = written(tmp_path / "m.jsonl", *({**MOON, "hash_ids": [0, 7 + n]} for n in range(400)))
    spread = [row.arrival_us for row in imported("mooncake", path, spread=3.0)]
    thin = Counter(row.client for row in imported("mooncake", path, clients=2, keep=(0.25, 1.0)))
    scaled = imported("mooncake", path, scale=16, slowdown=2)[0]

    assert spread == sorted(spread)
    assert 3_000_000 <= spread[0] < spread[-1] <= 6_000_000
    assert thin["c0"] == pytest.approx(50, abs=20)
    assert thin["c1"] == pytest.approx(200, abs=30)
    assert (len(scaled.prompt), scaled.output_len, scaled.arrival_us) == (37, 3, 6_000_000)


def test_agentic_sessions_keep_their_prefixes_and_their_order(tmp_path):
    rows = imported("agentic", written(tmp_path / "s.jsonl", SESSION))
    start = rows[0].arrival_us

    assert [(row.id, row.arrival_us - start, row.after) for row in rows] == [
        ("s1:0", 0, ()),
        ("s1:2", 20_000_000, ("s1:0",)),
        ("s1:1", 50_000_000, ()),
    ]
    assert [length for _, _, length in rows[0].prompt.runs] == [192, 8]
    assert rows[1].prompt.runs[0] == (rows[0].prompt.runs[0][0], 0, 256)
    assert [
        len(row.prompt)
        for row in imported("agentic", written(tmp_path / "s.jsonl", SESSION), scale=16)
    ] == [
        12,
        18,
        4,
    ]


def test_agentic_sessions_can_share_a_client(tmp_path):
    sessions = [{**SESSION, "session": f"s{n}"} for n in range(4)]
    rows = imported("agentic", written(tmp_path / "s.jsonl", *sessions), per_client=2)

    assert {(row.program, row.client) for row in rows} == {
        ("s0", "c0"),
        ("s1", "c0"),
        ("s2", "c1"),
        ("s3", "c1"),
    }
    assert {
        row.client
        for row in imported("agentic", written(tmp_path / "s.jsonl", *sessions), sessions=1)
    } == {"s0"}


def test_servegen_keeps_shares_and_burstiness_at_the_wanted_rate(tmp_path):
    """Client 1 has three quarters of the rate and is Poisson; client 2 is bursty in its second window."""
    files = servegen_files(
        tmp_path,
        "m,1,0,3,1,Gamma,1,0.33", "m,1,600,3,1,Gamma,1,0.33", "m,1,1200,3,1,Weibull,1,0.33",
        "m,2,600,3,3,Gamma,0.11,3", "other,1,0,900,1,Gamma,1,1",
    )  # fmt: skip
    rows = imported("servegen", *files, model="m", start=0.0, duration=1800.0, rate=20.0)
    sent = Counter(row.client for row in rows)

    assert len(rows) == pytest.approx(36_000, rel=0.05)
    assert sent["c1"] / sent["c2"] == pytest.approx(3, rel=0.1)
    assert {600e6 <= row.arrival_us < 1200e6 for row in rows if row.client == "c2"} == {True}
    assert sum(len(row.prompt) for row in rows) / len(rows) == pytest.approx(50, rel=0.05)


def test_a_gap_may_reach_over_several_windows(tmp_path):
    """Even gaps of three windows: drawn afresh in each window, nothing would ever come."""
    windows = [f"m,1,{600 * n},1,0.1,Gamma,10000,0.01" for n in range(30)]
    files = servegen_files(tmp_path, *windows)
    rows = imported("servegen", *files, model="m", start=0.0, duration=18_000.0, rate=1 / 1800)

    assert len(rows) == 10
    gaps = [b.arrival_us - a.arrival_us for a, b in pairwise(rows)]
    assert gaps == pytest.approx([1800e6] * 9, rel=0.1)


def test_servegen_begins_at_the_given_start(tmp_path):
    files = servegen_files(tmp_path, "m,1,0,3,1,Gamma,1,0.33", "m,1,600,3,1,Gamma,1,0.33")
    rows = imported("servegen", *files, model="m", start=300.0, duration=600.0, rate=5.0)

    assert 0 <= rows[0].arrival_us < 5e6
    assert 595e6 < rows[-1].arrival_us < 600e6
    assert len(rows) == pytest.approx(3000, rel=0.1)


MEASURED = {"workload": "real", "scheduler": "VTC"}
FIRST = {"clients": 0, "program": "first"}
PUBLIC = [
    ("vtc", ["vtc_arena_trace/requests.csv.gz"], {}, 1500, 27, 136, 256),
    ("vtc", ["vtc_measured/requests.csv.gz"], MEASURED, 1500, 27, 136, 256),
    ("azure", ["azure_llm_2023/conv.csv.gz"], {}, 13_828, 1, 1203, 201),
    ("azure", ["azure_llm_2023/code.csv.gz"], {}, 7148, 1, 2028, 27),
    ("mooncake", ["mooncake/conversation.jsonl.gz"], {"clients": 0}, 7689, 4844, 12_449, 348),
    ("mooncake", ["mooncake/synthetic.jsonl.gz"], FIRST, 2600, 1964, 13_186, 184),
]  # fmt: skip


@needs_data
@pytest.mark.parametrize("case", PUBLIC, ids=lambda case: case[1][0])
def test_public_files_have_their_published_figures(case, tmp_path):
    name, files, settings, requests, clients, input_mean, output_mean = case
    rows = imported(name, *(DATA / path for path in files), **settings)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(map(line, rows)))

    assert list(read_trace(path)) == rows
    assert (len(rows), len({row.client for row in rows})) == (requests, clients)
    assert round(sum(len(row.prompt) for row in rows) / requests) == input_mean
    assert round(sum(row.output_len for row in rows) / requests) == output_mean


@needs_data
def test_public_clients_are_sampled_at_the_wanted_rate():
    """Ten clients of m-large for two hours."""
    files = [DATA / f"servegen_clients/{name}.csv.gz" for name in ("arrivals", "lengths")]
    rows = imported("servegen", *files, model="m-large", rate=2.0, clients=10, duration=7200.0)
    arrived = Counter(row.client for row in rows)

    assert len(arrived) == 10
    assert len(rows) == pytest.approx(14_400, rel=0.1)
