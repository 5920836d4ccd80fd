"""The client of a request, with SGLang's own objects."""

from types import SimpleNamespace

import pytest
from sglang.srt.managers.io_struct import GenerateReqInput

from fairhit.engines.sglang.scheduler import FairSglangScheduler


@pytest.mark.parametrize(
    "whole",
    [
        GenerateReqInput(text="one", sampling_params={"n": 2}, routing_key="alice"),
        GenerateReqInput(text=["one", "two"], routing_key="alice"),
    ],
    ids=["two answers", "two prompts"],
)
def test_the_parts_of_a_request_are_for_whom_the_whole_is(plugged, whole):
    """SGLang copies every field but the one in which the header is."""
    whole.normalize_batch_and_arguments()

    assert not whole.is_single
    assert [whole[number].routing_key for number in range(len(whole.text))] == ["alice"] * len(
        whole.text
    )


def test_who_named_nobody_belongs_to_the_adapter_by_the_name_it_was_loaded_under():
    ref = SimpleNamespace(lora_name="team-a", pinned=False)
    manager = SimpleNamespace(lora_refs={"3f": ref})
    scheduler = object.__new__(FairSglangScheduler)
    scheduler.enable_lora, scheduler._names_adapters = True, True
    scheduler.tp_worker = SimpleNamespace(model_runner=SimpleNamespace(lora_manager=manager))
    parameters = SimpleNamespace(custom_params=None)

    def client(lora_id: str | None, routing_key: str | None = None) -> str:
        req = SimpleNamespace(sampling_params=parameters, lora_id=lora_id, routing_key=routing_key)
        return scheduler.client_of(req)

    assert [client("3f"), client(None), client("3f", "alice")] == ["team-a", "anonymous", "alice"]
    assert client("unloaded") == "unloaded"
