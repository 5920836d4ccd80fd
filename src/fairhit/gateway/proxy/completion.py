"""What an engine's answer is to the accounts, once its caller has it or is told that it never will."""

from typing import TYPE_CHECKING

from fairhit.dispatch import Usage
from fairhit.gateway.http.engine_connection import ENGINE_FAULTS, EngineConnections
from fairhit.gateway.proxy.interfaces import ProxyServices

if TYPE_CHECKING:
    from fairhit.gateway.proxy.exchange import Exchange


def settle(
    exchange: "Exchange",
    host: ProxyServices,
    engine: EngineConnections,
    status: int,
    said: tuple[Usage | None, str | None],
) -> None:
    """What the engine refuses, and what runs no model, is not charged. `said`: usage and text.

    It is over whatever of ours fails.
    """
    usage, text = said
    ran_us = exchange.ran_us()
    try:
        if status not in ENGINE_FAULTS:
            engine.breaker.succeeded()
        if status == 200 and exchange.surface.charged:
            host.dispatcher.finished(exchange.ticket, usage, ran_us=ran_us)
        else:
            host.dispatcher.refused(exchange.ticket)
        if text and exchange.remembers:
            host.said(exchange, text)
    finally:
        host.over(exchange, status)


def settle_unread(exchange: "Exchange", host: ProxyServices, status: int, length: int) -> None:
    """An answer of at least `length` bytes was thrown away: its engine has worked for it all the same.

    Where a path has outputs it is charged for as many as so many bytes of text are, and no more than
    were asked for.
    """
    ticket = exchange.ticket
    if status != 200 or not exchange.surface.charged:
        host.dispatcher.refused(ticket)
        return
    if exchange.surface.limits:
        ticket.output_len = min(host.dispatcher.scale.tokens(length), ticket.request.max_tokens)
    host.dispatcher.finished(ticket, None, ran_us=exchange.ran_us())
