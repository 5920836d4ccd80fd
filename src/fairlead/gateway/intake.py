"""From a request's last byte to the engine's first: who asks, for what, and what its prompt matches."""

import asyncio
from collections.abc import Callable
from functools import cached_property, partial

from fairlead.core.chunk_index import ChunkedText
from fairlead.core.request import ClientId, Request
from fairlead.dispatch import TOKEN_BYTES, Dispatcher, State
from fairlead.errors import EngineFailed, FairleadError
from fairlead.gateway.additions import Additions
from fairlead.gateway.caller import CallerConnection, Work
from fairlead.gateway.exchange import Exchange
from fairlead.gateway.host import Host
from fairlead.gateway.identity import Identity
from fairlead.gateway.incoming import Incoming
from fairlead.gateway.openai import (
    Call,
    answer_parts,
    answer_text,
    read_call,
)
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.surface import Surface
from fairlead.gateway.tokenizer import Tokenizer, head_token

# Clients whose fields are kept ready.
_READY = 4096


class Tokenizing:
    """A request whose prompt is being tokenized; stands where its exchange will.

    It keeps the client's place for it: `release` gives that up, when it ends in whatever way.
    """

    def __init__(
        self,
        connection: CallerConnection,
        encoding: "asyncio.Future[bytes]",
        *,
        deadline: float,
        release: Callable[[], None],
    ) -> None:
        self.deadline = deadline
        self._connection: CallerConnection | None = connection
        self._release = release
        self._encoding = encoding

    def done(self, begin: Callable[[], Exchange] | None) -> None:
        """Begin the exchange, unless it has ended meanwhile; None: the tokenizer failed."""
        if self._connection is None:
            return
        connection = self._end()
        if begin is None:
            connection.write_error(FairleadError("the prompt could not be tokenized"))
        else:
            connection.proceed(begin)

    def caller_gone(self) -> None:
        self._end()

    def tick(self, now: float) -> None:
        if now > self.deadline:
            self.stop(EngineFailed("the prompt was not tokenized in time"), status=504)

    def stop(self, error: FairleadError, *, status: int) -> None:
        self._end().write_error(error, status=status)

    def _end(self) -> CallerConnection:
        connection, self._connection = self._connection, None
        assert connection is not None, "it ends once"
        self._encoding.cancel()  # in vain where it is done
        self._release()
        return connection

    def pause(self) -> None:
        """Nothing is being sent."""

    def resume(self) -> None:
        """Nothing is being sent."""


class Intake:
    """Makes exchanges of requests."""

    def __init__(
        self,
        *,
        host: Host,
        dispatcher: Dispatcher,
        identity: Identity,
        settings: GatewaySettings,
    ) -> None:
        self._host = host
        self._dispatcher = dispatcher
        self._identity = identity
        self._tokenizer = Tokenizer(settings.tokenizer) if settings.tokenizer else None
        self._additions = Additions(settings)
        self._passes_key = not identity.needs_key and settings.worker_api_key is None
        self._timeout_s = settings.request_timeout_secs
        self._queue_timeout_s = settings.queue_timeout_secs
        self._order = 0

    def begin(self, connection: CallerConnection, request: Incoming, surface: Surface) -> Work:
        """Read a request and send it where it goes, or have it tokenized first.

        Raises FairleadError.
        """
        call = read_call(request.body, surface)
        client = self._identity.client_of(request.client, call.user)
        if self._tokenizer is None or not surface.cached:
            text = call.text()
            text_len = len(text) if call.tokens is None else 0
            return self._send(connection, request, call, client, text, text_len=text_len)
        if call.tokens is not None:
            text = head_token(call.head) + call.tokens
            return self._send(connection, request, call, client, text, text_len=0)
        return self._tokenize(self._tokenizer, connection, request, call, client)

    def said(self, exchange: Exchange, answer: str) -> None:
        """Remember prompt and answer: the next turn of the conversation begins with them."""

        def remember(more: bytes | None) -> None:
            said = exchange.prompt.extended(more) if more else exchange.prompt
            # Those of the prompt itself were inserted when it was sent.
            added = said.chunks[len(exchange.prompt.chunks) :]
            if added:
                self._dispatcher.remember(exchange.ticket.worker, added)

        if self._tokenizer is None:
            remember(answer_text(answer, exchange.surface))
        elif exchange.surface.turns:  # a completion's text and its prompt's may meet within a token
            self._tokenizer.submit(answer_parts(answer), remember)

    @property
    def count(self) -> int:
        """How many requests there have been."""
        return self._order

    def close(self) -> None:
        """Give up what is being tokenized."""
        if self._tokenizer is not None:
            self._tokenizer.close()

    def _tokenize(
        self,
        tokenizer: Tokenizer,
        connection: CallerConnection,
        request: Incoming,
        call: Call,
        client: ClientId,
    ) -> Tokenizing:
        self._dispatcher.reserve(client)

        def then(tokens: bytes | None) -> None:
            if tokens is None:
                waiting.done(None)
                return
            text = head_token(call.head) + tokens
            waiting.done(lambda: self._send(connection, request, call, client, text, text_len=0))

        waiting = Tokenizing(
            connection,
            tokenizer.submit(call.parts, then),  # which calls back later, even if it is done
            deadline=self._deadline(),
            release=partial(self._dispatcher.release, client),
        )
        return waiting

    def _send(
        self,
        connection: CallerConnection,
        request: Incoming,
        call: Call,
        client: ClientId,
        text: bytes,
        *,
        text_len: int,
    ) -> Exchange:
        """`text_len` 0: the text is token numbers, so that its length is known."""
        hide_usage = self._additions.asks_usage(call)
        fields = self._additions.to(call, client, ask_usage=hide_usage)
        # Before it arrives: what is refused from here on must leave no ticket behind.
        body, lines = fields.added_to(request.body, call.document), self._lines(request)
        prompt = ChunkedText().extended(text) if call.surface.cached else ChunkedText()
        tokens = self._dispatcher.scale.tokens(text_len) if text_len else len(text) // TOKEN_BYTES
        self._order += 1
        ticket = self._dispatcher.arrive(
            Request(
                id=str(self._order),
                client=client,
                prompt=prompt.chunks,
                input_len=max(1, tokens),
                max_tokens=call.max_tokens * call.answers,
                order=self._order,
            ),
            model=call.model,
            text_len=text_len,
            streams=call.stream,
        )
        exchange = Exchange(
            host=self._host,
            caller=connection,
            ticket=ticket,
            target=request.target,
            lines=lines,
            body=body,
            hide_usage=hide_usage,
            prompt=prompt,
            surface=call.surface,
            remembers=call.answers == 1,
            streams=call.stream,
            deadline=self._deadline(),
            queue_until=self._loop.time() + self._queue_timeout_s,
        )
        self._host.began(exchange)
        if ticket.state is State.WAITING:
            exchange.send()
        return exchange

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _deadline(self) -> float:
        return self._loop.time() + self._timeout_s

    def _lines(self, request: Incoming) -> bytes:
        """The caller's headers; its key goes on only where it is not ours and no engine key is set."""
        if self._passes_key:
            if request.authorization:
                request.lines.append(b"authorization: " + request.authorization + b"\r\n")
            if request.api_key:
                request.lines.append(b"x-api-key: " + request.api_key + b"\r\n")
        return b"".join(request.lines)
