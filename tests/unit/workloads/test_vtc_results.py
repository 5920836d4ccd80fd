"""The artifact's result files become the CSV files of its measured runs."""

import gzip
import json

import pytest

from fairlead.errors import ConfigError
from fairlead.workloads.importers.vtc_results import convert

RESPONSE = {
    "adapter_dir": "dummy-lora-7b-rank-8-1", "prompt_len": 256, "output_len": 256,
    "request_latency": 12.5049, "first_token_latency": 0.9351, "req_time": 0.6504,
}  # fmt: skip


def results(*responses):
    return {
        "config": {"req_rate": [1.5, 3], "duration": 360},
        "result": {"total_time": 1, "responses": list(responses)},
    }


def test_results_of_the_artifact_become_its_measured_rows(tmp_path):
    folder = tmp_path / "LShare" / "rpm5"
    folder.mkdir(parents=True)
    rejected = {
        **RESPONSE,
        "adapter_dir": "x-0",
        "request_latency": -1,
        "first_token_latency": -1,
        "req_time": 0.5,
    }
    path = folder / "all_results_on-off.jsonl"
    path.write_text(json.dumps(results(RESPONSE, rejected)) + "\n")

    assert convert([str(path)], str(tmp_path / "out")) == 1

    assert gzip.decompress(
        (tmp_path / "out/requests.csv.gz").read_bytes()
    ).decode().splitlines() == [
        "workload,scheduler,t_s,client,input_tokens,output_tokens,first_token_latency_s,request_latency_s",
        "on_off,RPM5,0.500,0,256,256,-1.000,-1.000",
        "on_off,RPM5,0.650,1,256,256,0.935,12.505",
    ]
    assert (tmp_path / "out/runs.csv").read_text().splitlines()[
        1
    ] == "on_off,RPM5,2,1,13.155,38.9,360,1.5|3"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            {"prompt_len": "x"},
            r'1: field "result\.responses\[0\]\.prompt_len": expected a whole number',
        ),
        (
            {"adapter_dir": "x"},
            r'1: field "result\.responses\[0\]\.adapter_dir": expected a name that ends',
        ),
        (
            {"req_time": None},
            r'1: field "result\.responses\[0\]\.req_time": expected a number from -1',
        ),
    ],
)
def test_a_broken_result_is_named_and_nothing_is_written(tmp_path, change, complaint):
    path = tmp_path / "all_results_x.jsonl"
    path.write_text(json.dumps(results({**RESPONSE, **change})) + "\n")

    with pytest.raises(ConfigError, match=complaint):
        convert([str(path)], str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []
