"""A real SGLang that publishes its KV events, played to by the stories of `tests.e2e.kv_events`."""

from dataclasses import dataclass

from tests.e2e.kv_events.engine import Engine
from tests.sglang.capture import published
from tests.sglang.server import Server

# Of KV: several prompts, and far from all that a story asks.
TOKENS = 3000


@dataclass
class PublishingSGLang(Engine):
    """`stop` and `start` again keep its ports."""

    policy: str = "fcfs"
    form: str = "default"
    page_len: int = 1
    server: Server | None = None

    def start(self) -> None:
        self.server = Server(
            self.folder,
            self.policy,
            "--page-size", str(self.page_len), "--max-total-tokens", str(TOKENS),
            *published(self.ports[1], self.ports[2], form=self.form), *self.flags,
            environment=self.environment,
            port=self.ports[0],
        )  # fmt: skip
        self.server.wait_until_it_answers()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
