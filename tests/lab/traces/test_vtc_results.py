"""The artifact's result files become the CSV files of its measured runs."""

import csv
import gzip
import json

import pytest
from tests.lab.traces.public_data import DATA, needs_data

from fairhit.errors import ConfigError
from fairhit_lab.traces.importers.vtc_results import convert

RESPONSE = {
    "adapter_dir": "dummy-lora-7b-rank-8-1", "prompt_len": 256, "output_len": 256,
    "request_latency": 12.5049, "first_token_latency": 0.9351, "req_time": 0.6504,
}  # fmt: skip


def results(*responses):
    return {
        "config": {"req_rate": [1.5, 3], "duration": 360},
        "result": {"total_time": 13.1554, "responses": list(responses)},
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
        "on_off,RPM5,0.500,0,256,256,-1,-1",
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


MEASURED = [("LShare/rpm5", "RPM5"), ("VTC", "VTC")]


@needs_data
@pytest.mark.parametrize(("folder", "scheduler"), MEASURED)
def test_the_public_rows_come_out_as_they_are(folder, scheduler, tmp_path):
    """The measured rows, put back into the artifact's form and converted, are the data's own lines."""
    requests = gzip.decompress((DATA / "vtc_measured/requests.csv.gz").read_bytes()).decode()
    header, *lines = requests.splitlines()
    lines = [line for line in lines if line.startswith(f"real,{scheduler},")]
    runs = (DATA / "vtc_measured/runs.csv").read_text().splitlines()
    run = next(line for line in runs if line.startswith(f"real,{scheduler},"))
    responses = [
        {
            "adapter_dir": f"lora-{row['client']}",
            "prompt_len": int(row["input_tokens"]),
            "output_len": int(row["output_tokens"]),
            "req_time": float(row["t_s"]),
            "first_token_latency": float(row["first_token_latency_s"]),
            "request_latency": float(row["request_latency_s"]),
        }
        for row in csv.DictReader([header, *lines])
    ]
    path = tmp_path / folder / "all_results_real.jsonl"
    path.parent.mkdir(parents=True)
    record = {
        "config": {"req_rate": 3.5, "duration": 600},
        "result": {"responses": responses, "total_time": float(run.split(",")[4])},
    }
    path.write_text(json.dumps(record))

    convert([str(path)], str(tmp_path / "out"))

    made = gzip.decompress((tmp_path / "out/requests.csv.gz").read_bytes()).decode()
    assert made.splitlines() == [header, *lines]
    assert (tmp_path / "out/runs.csv").read_text().splitlines()[1] == run
