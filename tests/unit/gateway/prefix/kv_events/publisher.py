"""A publisher of KV events that is no engine: real sockets, numbered batches, replays, restarts."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)


@dataclass
class Publisher:
    """PUB and ROUTER as vLLM has them: numbered batches, the last `keeps` of them kept."""

    keeps: int = 1000
    topic_in_replay: bool = True  # since vLLM 0.26
    answers: bool = True
    context: zmq.Context = field(default_factory=zmq.Context)
    batches: list[bytes] = field(default_factory=list)
    ports: tuple[int, int] = (0, 0)
    asked: list[int] = field(default_factory=list)
    born: float = 0.0

    def open(self) -> "Publisher":
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.ports = (self._bind(self.pub, self.ports[0]), self._bind(self.router, self.ports[1]))
        self.task = asyncio.get_running_loop().create_task(self._replay())
        return self

    def _bind(self, socket: Any, port: int) -> int:
        socket.set(zmq.LINGER, 0)
        until = time.monotonic() + 20
        while True:
            try:
                socket.bind(f"tcp://127.0.0.1:{port or '*'}")
                break
            except zmq.ZMQError as error:
                # A closed socket leaves its port a moment later, in a thread of ZMQ's.
                if error.errno != zmq.EADDRINUSE or time.monotonic() > until:
                    raise
                time.sleep(0.02)
        return int(socket.get(zmq.LAST_ENDPOINT).decode().rpartition(":")[2])

    def say(self, *events: Any, lost: bool = False) -> None:
        number = len(self.batches)
        self.batches.append(msgspec.msgpack.encode([self.born + number, list(events), 0]))
        if not lost:
            self.send(number)

    def send(self, number: int) -> None:
        self.pub.send_multipart([b"kv", number.to_bytes(8, "big"), self.batches[number]])

    def close(self) -> None:
        self.task.cancel()
        self.pub.close(0)
        self.router.close(0)

    def restart(self) -> None:
        self.close()
        self.batches.clear()
        self.born += 1000
        self.open()

    async def _replay(self) -> None:
        topic = [b"kv"] if self.topic_in_replay else []
        while True:
            await asyncio.sleep(0.01)
            if not self.router.poll(0):
                continue
            caller, empty, first = self.router.recv_multipart()
            self.asked.append(int.from_bytes(first, "big"))
            if not self.answers:
                continue
            kept = max(0, len(self.batches) - self.keeps)
            for number in range(max(kept, self.asked[-1]), len(self.batches)):
                frames = [*topic, number.to_bytes(8, "big"), self.batches[number]]
                self.router.send_multipart([caller, empty, *frames])
            self.router.send_multipart([caller, empty, *([b""] if topic else []), END, b""])
