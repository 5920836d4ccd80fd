"""Admission of requests: parse the body, identify the client, match the prompt, send to an engine."""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from xxhash import xxh3_64_intdigest

from fairhit.core.cache.token_blocks import TOKEN_BYTES, BlockedTokens
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.dispatch import Dispatcher, TicketState
from fairhit.errors import EngineFailed, FairhitError
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.api.injected_fields import FieldInjector
from fairhit.gateway.api.long_body import is_short, outline
from fairhit.gateway.api.request_body import ParsedBody, answer_text, parse_body, parse_long_body
from fairhit.gateway.auth.header_options import RoutingKey
from fairhit.gateway.auth.identity import Identity
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.read_budget import ITERATION, SHORT, ReadBudget, Steps
from fairhit.gateway.prefix.tokenizer import Tokenizer
from fairhit.gateway.proxy.exchange import Exchange, ProxyServices
from fairhit.gateway.proxy.incoming_request import Body, IncomingRequest
from fairhit.gateway.proxy.interfaces import OngoingRequest
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers.prefix_index.approximate import ChunkedText
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

# Bytes of tokens that are cut into blocks on the event loop; a millisecond's work.
_BLOCKED_AT_ONCE = 1 << 16
# Weight of a parsed byte in the read budget: parsing lists takes ten times as long as searching text.
_PARSED = 2
_EMPTY = ChunkedText()
# A prompt in the form of the prefix index, its units there, its tokens, and the bytes from which these were
# estimated, 0 if they were counted. Not a NamedTuple, which compiled code makes and reads as Python does.
_Read: TypeAlias = tuple[ChunkedText | BlockedTokens, tuple[int, ...], int, int]


class PendingRequest:
    """A request without an exchange yet: its long body is being parsed, its prompt tokenized, or its model
    looked up at the engines.

    It counts towards its client's limit of requests in flight until `release` is called at its end.
    """

    def __init__(
        self,
        connection: ClientConnection,
        awaited: "asyncio.Future[Any]",
        *,
        deadline: float,
        release: Callable[[], None],
    ) -> None:
        self.deadline = deadline
        self.awaited = awaited
        self._connection: ClientConnection | None = connection
        self._release = release

    def done(self, begin: Callable[[], OngoingRequest] | None) -> None:
        """Begin the exchange, unless the request has ended meanwhile; None: the tokenizer failed."""
        if self._connection is None:
            return
        connection = self._end()
        if begin is None:
            connection.refuse(FairhitError("the prompt could not be tokenized"))
        else:
            connection.proceed(begin)

    def on_disconnect(self) -> None:
        self._end()

    def tick(self, now: float) -> None:
        if now > self.deadline:
            self.stop(EngineFailed("the request could not be prepared in time"), status=504)

    def stop(self, error: FairhitError, *, status: int) -> None:
        self._end().refuse(error, status=status)

    def _end(self) -> ClientConnection:
        connection, self._connection = self._connection, None
        assert connection is not None, "a pending request ends once"
        self.awaited.cancel()  # without effect if it is done
        self._release()
        return connection

    def pause(self) -> None:
        """Without effect: no engine is sending."""

    def resume(self) -> None:
        """Without effect: no engine is sending."""


class Admission:
    """Makes exchanges of requests that are received completely."""

    def __init__(
        self,
        *,
        services: ProxyServices,
        dispatcher: Dispatcher,
        identity: Identity,
        settings: GatewaySettings,
        list_again: Callable[[], "asyncio.Future[None]"],
        read_budget: ReadBudget,
        tokenizer: Tokenizer | None = None,
        index: PrecisePrefixIndex | None = None,
    ) -> None:
        self._read_budget = read_budget
        self._services = services
        # Random, or a client could make prompts whose hashes are those of another's
        # (`prefix_index.approximate`).
        self._seed = secrets.randbits(64)
        self._dispatcher = dispatcher
        self._identity = identity
        self._list_again = list_again
        self._tokenizer = tokenizer
        self._index = index
        self._injector = FieldInjector(settings)
        self._timeout_s = settings.request_timeout_secs
        self._queue_timeout_s = settings.queue_timeout_secs
        self._routing_key = RoutingKey.wanted(settings)
        self._order = 0

    def begin(
        self, connection: ClientConnection, request: IncomingRequest, endpoint: Endpoint
    ) -> OngoingRequest:
        """Parse a request and send it to an engine, or have it tokenized first; a long body in steps.

        Raises FairhitError.
        """
        body = request.body
        if len(body) > SHORT:
            if not (is_short(body) and self._read_budget.take(_PARSED * len(body))):
                return self._read_in_steps(connection, request, endpoint)
        return self._called(connection, request, parse_body(body, endpoint))

    def _called(
        self, connection: ClientConnection, request: IncomingRequest, parsed: ParsedBody
    ) -> OngoingRequest:
        client = self._identity.client_of(request.client, parsed.user)
        self._injector.isolate(parsed, client)
        if not self._dispatcher.engine_table.is_listed(parsed.model):
            return self._find_model(connection, request, parsed, client)
        return self._begin(connection, request, parsed, client)

    def _begin(
        self,
        connection: ClientConnection,
        request: IncomingRequest,
        parsed: ParsedBody,
        client: ClientId,
    ) -> OngoingRequest:
        if self._tokenizer is None or not parsed.endpoint.cached:
            return self._send(connection, request, parsed, client, self._chunked(parsed))
        if parsed.tokens is not None and len(parsed.tokens) <= _BLOCKED_AT_ONCE:
            prompt = self._tokenizer.prompt(parsed)
            return self._send(connection, request, parsed, client, _read(prompt, parsed))
        return self._tokenize(self._tokenizer, connection, request, parsed, client)

    def index_answer(self, exchange: Exchange, answer: str) -> None:
        """Insert prompt and answer into the prefix index: the next prompt of the conversation begins with
        them.
        """
        prompt, worker = exchange.prompt, exchange.ticket.worker

        def insert(text: ChunkedText | BlockedTokens | None) -> None:
            # The prompt was inserted when it was sent.
            added = text.chunks[len(exchange.ticket.request.prompt) :] if text is not None else ()
            if added:
                self._dispatcher.remember(worker, added)

        if isinstance(prompt, ChunkedText):
            text = answer_text(answer, exchange.endpoint)
            insert(prompt.extended(text, xxh3_64_intdigest, seed=self._seed))
        # The text of a completion and of its prompt may join within a token.
        elif exchange.endpoint.is_conversation and not self._has_events(worker, prompt):
            assert self._tokenizer is not None, "only a tokenizer makes blocks of tokens"
            self._tokenizer.submit(
                exchange.ticket.request.client,
                partial(self._tokenizer.continued, prompt, answer),
                insert,
            )

    def change(self, settings: GatewaySettings, identity: Identity) -> None:
        """Use other settings and keys. Requests that wait already keep their order and their time limits."""
        self._identity = identity
        self._timeout_s = settings.request_timeout_secs
        self._queue_timeout_s = settings.queue_timeout_secs
        self._dispatcher.queue.limit_waiting(settings.queue_size)

    @property
    def count(self) -> int:
        """Number of requests so far."""
        return self._order

    def close(self) -> None:
        """Cancel what is being tokenized."""
        if self._tokenizer is not None:
            self._tokenizer.close()

    def _read_in_steps(
        self, connection: ClientConnection, request: IncomingRequest, endpoint: Endpoint
    ) -> PendingRequest:
        """Parse a long body in steps. The client is the one that the head names, until then."""
        client = self._identity.client_of(request.client, None)

        def then(done: "asyncio.Future[ParsedBody]") -> None:
            if not done.cancelled():
                pending.done(lambda: self._called(connection, request, done.result()))

        steps = _steps(request.body, endpoint)
        pending = self._pending(
            connection, client, lambda: self._read_budget.run(steps, owner=client)
        )
        pending.awaited.add_done_callback(then)
        return pending

    def _find_model(
        self,
        connection: ClientConnection,
        request: IncomingRequest,
        parsed: ParsedBody,
        client: ClientId,
    ) -> PendingRequest:
        """Have engines list their models again: one may have loaded this one since."""

        def then(_: "asyncio.Future[None]") -> None:
            pending.done(lambda: self._begin(connection, request, parsed, client))

        # The list is shared with other requests: cancelling this one must not cancel it.
        pending = self._pending(connection, client, lambda: asyncio.shield(self._list_again()))
        pending.awaited.add_done_callback(then)
        return pending

    def _tokenize(
        self,
        tokenizer: Tokenizer,
        connection: ClientConnection,
        request: IncomingRequest,
        parsed: ParsedBody,
        client: ClientId,
    ) -> PendingRequest:

        def then(prompt: BlockedTokens | None) -> None:  # called later, even if the work is done
            if prompt is None:
                pending.done(None)
                return
            read = _read(prompt, parsed)
            pending.done(lambda: self._send(connection, request, parsed, client, read))

        encode = partial(tokenizer.prompt, parsed)
        pending = self._pending(connection, client, lambda: tokenizer.submit(client, encode, then))
        return pending

    def _pending(
        self,
        connection: ClientConnection,
        client: ClientId,
        start: "Callable[[], asyncio.Future[Any]]",
    ) -> PendingRequest:
        """Count a request as in flight, and make it wait for what `start` begins. Raises FairhitError."""
        self._dispatcher.reserve(client)
        release = partial(self._dispatcher.release, client)
        try:
            awaited = start()
        except Exception:  # no thread can be started
            release()
            raise
        return PendingRequest(connection, awaited, deadline=self._deadline(), release=release)

    def _send(
        self,
        connection: ClientConnection,
        request: IncomingRequest,
        parsed: ParsedBody,
        client: ClientId,
        read: _Read,
    ) -> Exchange:
        prompt, units, input_len, text_len = read
        hide_usage = self._injector.asks_usage(parsed)
        fields = self._injector.fields(parsed, client, ask_usage=hide_usage)
        # Before a ticket is made: a request that is refused must leave none behind.
        trace = self._services.trace(request)
        body = fields.added_to(request.body, parsed.document, parsed.outline)
        lines = self._injector.headers(request.lines, parsed, client)
        self._order += 1
        ticket = self._dispatcher.arrive(
            Request(
                id=str(self._order),
                client=client,
                prompt=units,
                input_len=max(1, input_len),
                max_tokens=parsed.max_tokens * parsed.answers,
                order=self._order,
                routing_key=self._routing_key.of(request.head) if self._routing_key else "",
            ),
            model=parsed.model,
            text_len=text_len,
            streams=parsed.stream,
            answers=parsed.answers if parsed.endpoint.limits else 0,
        )
        exchange = Exchange(
            services=self._services,
            writer=connection,
            ticket=ticket,
            target=request.head.target,
            lines=lines,
            body=body,
            hide_usage=hide_usage,
            prompt=prompt,
            endpoint=parsed.endpoint,
            indexes_answer=parsed.answers == 1 and not parsed.unparsed,
            streams=parsed.stream,
            deadline=self._deadline(),
            queue_timeout_s=self._queue_timeout_s,
            trace=trace,
        )
        self._services.exchanges[ticket] = exchange
        if ticket.state is TicketState.WAITING:
            try:
                exchange.send()
            except Exception:  # a bug, which the client connection reports: end the exchange
                exchange.on_disconnect()
                raise
        return exchange

    def _chunked(self, parsed: ParsedBody) -> _Read:
        text = parsed.text()
        prompt = _EMPTY
        if parsed.endpoint.cached:
            prompt = prompt.extended(text, xxh3_64_intdigest, seed=self._seed)
        length = len(text) + int(len(text) * parsed.unparsed)
        if parsed.tokens is not None:
            return prompt, prompt.chunks, length // TOKEN_BYTES, 0
        return prompt, prompt.chunks, self._dispatcher.scale.tokens(length), length

    def _has_events(self, worker: WorkerId, prompt: BlockedTokens) -> bool:
        """True if the engine's KV events report which blocks of the answer are cached."""
        index = self._index
        if index is None or worker not in index:
            return False
        return prompt.exact and index.knowledge(worker) is Knowledge.COMPLETE

    def _deadline(self) -> float:
        return monotonic() + self._timeout_s


def _read(prompt: BlockedTokens, parsed: ParsedBody) -> _Read:
    return prompt, prompt.reusable, prompt.length + int(prompt.length * parsed.unparsed), 0


def _steps(body: Body, endpoint: Endpoint) -> Steps[ParsedBody]:
    """Parse a body in steps. Raises BadRequest."""
    if is_short(body):
        yield _PARSED * len(body)
        return parse_body(body, endpoint)
    found = yield from outline(body)
    yield ITERATION
    return parse_long_body(body, found, endpoint)
