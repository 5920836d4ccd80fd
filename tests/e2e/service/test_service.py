"""The embedded service as its users meet it: official client, streams, a crash, an impostor."""

import concurrent.futures
import json
import re
import time
import urllib.request

import openai
import psutil
import pytest
from openai import OpenAI

from fairhit.local.engine_process import completes
from tests.e2e.deploy.processes import until
from tests.e2e.service.conftest import KEYS, Running

pytestmark = pytest.mark.e2e

ASK = [{"role": "user", "content": "Tell me about fairness."}]


def client_of(running: Running, tenant: str) -> OpenAI:
    return OpenAI(base_url=f"{running.service.url}/v1", api_key=KEYS[tenant], max_retries=0)


def counters(running: Running, name: str) -> dict[str, float]:
    """That per-client counter, summed over the engines' own /metrics."""
    total: dict[str, float] = {}
    for url in running.service.engine_urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        for client, value in re.findall(
            rf'^{name}{{client="([^"]+)"[^}}]*}} (\S+)$', text, re.MULTILINE
        ):
            total[client] = total.get(client, 0) + float(value)
    return total


def settled_outputs(running: Running, at_least: float) -> dict[str, float]:
    """The engines write their counters once a second: wait until they have."""
    until = time.monotonic() + 20
    while True:
        found = counters(running, "fairhit_output_tokens_total")
        if sum(found.values()) >= at_least or time.monotonic() > until:
            return found
        time.sleep(0.3)


def test_the_official_client_streams(running: Running):
    client = client_of(running, "light")
    assert [model.id for model in client.models.list()] == ["demo"]

    stream = client.chat.completions.create(
        model="demo",
        messages=ASK,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = list(stream)

    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 1
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 16


def test_the_official_client_without_streaming(running: Running):
    answer = client_of(running, "light").completions.create(
        model="demo", prompt="Once upon a time", max_tokens=4, extra_body={"ignore_eos": True}
    )

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    assert answer.choices[0].text


def test_a_wrong_key_is_refused_and_learns_nothing_else(running: Running):
    client = OpenAI(base_url=f"{running.service.url}/v1", api_key="guess", max_retries=0)

    with pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model="demo", messages=ASK)

    assert not any(key in str(caught.value) for key in KEYS.values())


def test_a_second_turn_finds_its_prefix_cached(running: Running):
    """What the whole project is about: the second question about one document is cheap."""
    client = client_of(running, "light")
    document = "All work and no play makes Jack a dull boy. " * 20

    def ask(question: str) -> int:
        answer = client.completions.create(model="demo", prompt=document + question, max_tokens=1)
        assert answer.usage is not None
        details = answer.usage.prompt_tokens_details
        return (details.cached_tokens or 0) if details else 0

    assert ask("Who?") == 0
    assert ask("What?") >= 128


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"vllm_xargs": {"fair_client": "heavy"}}, {}),
        ({"vllm_xargs": {"fair_client": "heavy"}, "user": "heavy"}, {}),
        ({"user": "heavy"}, {"x-llm-d-inference-fairness-id": "heavy"}),
        ({}, {"x-gateway-inference-fairness-id": "heavy", "x-smg-tenant-id": "heavy"}),
    ],
)
def test_an_impostor_pays_for_itself(running: Running, body: dict, headers: dict):
    """Light says that it is heavy: the engines charge light all the same."""
    before = counters(running, "fairhit_output_tokens_total")
    client_of(running, "light").completions.create(
        model="demo",
        prompt="It was not me",
        max_tokens=8,
        extra_headers=headers,
        extra_body={"ignore_eos": True, **body},
    )
    after = settled_outputs(running, sum(before.values()) + 8)

    assert after["light"] == before.get("light", 0) + 8
    assert after.get("heavy", 0) == before.get("heavy", 0)


def test_an_engine_does_not_speak_to_strangers(running: Running):
    """Who reaches an engine past the gateway could claim any identity: it needs the gateway's key."""
    port = int(running.service.engine_urls[0].rpartition(":")[2])

    assert not completes(port, "demo", KEYS["heavy"])


def processes_of(running: Running, number: int) -> list[psutil.Process]:
    pid = running.service.engines[number].pid
    assert pid is not None
    return psutil.Process(pid).children(recursive=True)


Story = tuple[bool, bool, str]  # an answer began, was whole, or ended with this error


def ask_together(
    running: Running, callers: int
) -> tuple[list[concurrent.futures.Future[None]], list[Story]]:
    """So many streams at once, and what became of each, as soon as it has ended."""
    client, stories = client_of(running, "heavy"), list[Story]()

    def ask(number: int) -> None:
        begun = whole = False
        error = ""
        try:
            stream = client.chat.completions.create(
                model="demo",
                messages=[{"role": "user", "content": f"{number} " + "why? " * 50}],
                max_tokens=64,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            for chunk in stream:
                begun = True
                whole = bool(chunk.choices and chunk.choices[0].finish_reason) or whole
        except openai.APIError as failure:
            error = str(failure)
        stories.append((begun, whole, error))

    pool = concurrent.futures.ThreadPoolExecutor(callers)
    asked = [pool.submit(ask, number) for number in range(callers)]
    pool.shutdown(wait=False)
    return asked, stories


def operate(running: Running, path: str, document: dict | None = None) -> dict:
    """What the gateway answers an operator on this machine."""
    data = None if document is None else json.dumps(document).encode()
    with urllib.request.urlopen(f"{running.service.url}{path}", data=data, timeout=5) as answer:
        return json.load(answer)


def until_up(running: Running, *, number: int, within_s: float = 60) -> None:
    """Until the gateway uses so many engines."""

    def are_up() -> bool:
        return sum(worker["up"] for worker in operate(running, "/workers")["workers"]) == number

    until(are_up, within_s=within_s)


def test_an_engine_is_drained_and_had_back_while_callers_stream(running: Running):
    """What it has begun ends there, the rest is the other's, and no caller notices anything."""
    leaving = running.service.engine_urls[0]
    asked, stories = ask_together(running, 24)
    until(lambda: bool(stories))
    operate(running, "/workers/drain", {"url": leaving})
    until_up(running, number=1)
    again, more = ask_together(running, 24)
    operate(running, "/workers", {"url": leaving})
    until_up(running, number=2)
    concurrent.futures.wait([*asked, *again], timeout=120)

    assert stories + more == [(True, True, "")] * 48


def test_an_engine_that_stops_for_a_while_costs_time_and_nothing_else(running: Running):
    """SIGSTOP: what it had not begun moves when its probes fail; the rest goes on at SIGCONT."""
    asked, stories = ask_together(running, 24)
    until(lambda: bool(stories))
    stopped = processes_of(running, 0)
    for process in stopped:
        process.suspend()
    until_up(running, number=1)
    until(lambda: len(stories) >= 20, within_s=90)  # four may have begun where it stopped
    for process in stopped:
        process.resume()
    concurrent.futures.wait(asked, timeout=120)

    assert [story for story in stories if not story[1]] == []
    assert len(stories) == 24
    until_up(running, number=2)


def test_a_killed_engine_loses_nothing_that_had_not_begun(running: Running):
    """kill -9 on one engine in the middle of a flood.

    Streams that had begun on it end with an error; everything else is answered, by the other
    engine or by this one once it is back.
    """
    asked, stories = ask_together(running, 40)
    while not any(begun for begun, _, _ in stories):
        time.sleep(0.05)
    for process in processes_of(running, 0):
        process.kill()
    concurrent.futures.wait(asked, timeout=120)

    lost = [story for story in stories if not story[1]]
    assert len(stories) == 40
    assert all(begun and error for begun, _, error in lost), lost
    # Four run at a time on an engine; no other can have begun there.
    assert 0 < len(lost) <= 4
    running.wait_ready(0)
    assert ("engine 0", "ready") in running.news[-3:]
    client_of(running, "light").completions.create(model="demo", prompt="back?", max_tokens=1)


def test_the_gateway_comes_back_too(running: Running):
    pid = running.service.gateway.pid
    assert pid is not None
    for process in psutil.Process(pid).children():
        process.kill()
    deadline = time.monotonic() + 60
    while running.service.gateway.pid == pid and time.monotonic() < deadline:
        time.sleep(0.1)

    while True:
        try:
            with urllib.request.urlopen(f"{running.service.url}/workers", timeout=5) as answer:
                workers = json.load(answer)["workers"]
            if all(worker["up"] for worker in workers):
                break
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)
    client_of(running, "light").completions.create(model="demo", prompt="back?", max_tokens=1)
