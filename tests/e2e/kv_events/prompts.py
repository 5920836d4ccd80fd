"""Prompts in the three forms: as tokens, as text, as chats; many begin alike."""

import random
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "servers",
    "share",
    "caches",
    "fairly",
]


def text(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def numbers(seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(10, 2000) for _ in range(count)]


def asked(seed: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Prompts that begin like others, in each of the three forms in turn."""
    rng = random.Random(seed)
    made: list[tuple[str, dict[str, Any]]] = []
    for number in range(count):
        shared, length = rng.randrange(4), rng.randrange(40, 400)
        if number % 3 == 0:
            prompt = numbers(shared, 600)[:length] + numbers(1000 + number, rng.randrange(60))
            made.append((COMPLETIONS, {"prompt": prompt}))
        elif number % 3 == 1:
            made.append((COMPLETIONS, {"prompt": text(shared, 300)[: length * 4]}))
        else:
            system = {"role": "system", "content": text(shared, 200)}
            user = {"role": "user", "content": text(1000 + number, 20)}
            made.append((CHAT, {"messages": [system, user]}))
    return made
